"""What was lost, how, what led to it, and what would have kept it.

`loss_ledger` counts by slot, `mechanisms` names the cause. Imports all of the rooms before.
"""
