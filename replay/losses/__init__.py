"""What was lost and how, what led to it, and what would have prevented it.

`loss_ledger` counts by slot, `mechanisms` names the cause. Imports all of the rooms before.
"""
