-------------------------------- MODULE SameSteps --------------------------------
(* Whether ReplicationSteps has the steps of Kip320, in both directions. It needs   *)
(* the specification's own files beside it, which are not part of Tidemark.         *)
(* Records get their numbers in the order of their writing, as in Kip320.           *)

EXTENDS ReplicationSteps, FiniteSets

CONSTANTS LogSize, MaxRecords, MaxLeaderEpoch, Replicas

VARIABLE written  \* the epochs and offsets of all records, in the order of their writing

Place(b, n) == <<log[b][n], n>>
Note ==
    LET last(b) == <<log'[b][Len(log'[b])], Len(log'[b])>>
        new == {b \in Brokers : Len(log'[b]) > Len(log[b]) /\ \A k \in 1 .. Len(written) : written[k] # last(b)}
    IN  written' = IF new = {} THEN written ELSE Append(written, last(CHOOSE b \in new : TRUE))

NumberOf(b, n) == (CHOOSE k \in 1 .. Len(written) : written[k] = Place(b, n)) - 1
Nil == -1

TheirLog == [b \in Brokers |-> [
    endOffset |-> Len(log[b]),
    records |-> [offset \in 0 .. LogSize - 1 |->
        IF offset < Len(log[b]) THEN [id |-> NumberOf(b, offset + 1), epoch |-> log[b][offset + 1]] ELSE Nil]]]
TheirState == [b \in Brokers |-> [hw |-> hw[b], leaderEpoch |-> epoch[b], leader |-> leader[b], isr |-> isr[b]]]
TheirDecision(d) == [leaderEpoch |-> d.epoch, leader |-> d.leader, isr |-> d.isr]

Theirs == INSTANCE Kip320 WITH
    replicaLog <- TheirLog,
    replicaState <- TheirState,
    nextRecordId <- Len(written),
    nextLeaderEpoch <- quorum.epoch + 1,
    leaderAndIsrRequests <- {TheirDecision(d) : d \in told},
    quorumState <- TheirDecision(quorum)

Small ==
    /\ quorum.epoch <= MaxLeaderEpoch
    /\ Len(written) <= MaxRecords
    /\ \A b \in Brokers : Len(log[b]) <= LogSize

OurInit == Init /\ written = <<>>
OurNext == Next /\ Note /\ Small'
Ours == OurInit /\ [][OurNext]_<<vars, written>>
StepsAreTheirs == Theirs!Init /\ [][Theirs!Next]_<<TheirLog, TheirState, quorum, told, written>>
==================================================================================
