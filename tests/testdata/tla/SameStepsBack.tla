------------------------------ MODULE SameStepsBack ------------------------------
(* The other direction of SameSteps: whether each step of Kip320 is one of          *)
(* ReplicationSteps. It needs the specification's own files beside it as well.      *)

EXTENDS Kip320, Sequences

CONSTANTS Brokers, Also

Ours == INSTANCE ReplicationSteps WITH
    log <- [b \in Brokers |-> [n \in 1 .. replicaLog[b].endOffset |-> replicaLog[b].records[n - 1].epoch]],
    hw <- [b \in Brokers |-> replicaState[b].hw],
    epoch <- [b \in Brokers |-> replicaState[b].leaderEpoch],
    leader <- [b \in Brokers |-> replicaState[b].leader],
    isr <- [b \in Brokers |-> replicaState[b].isr],
    quorum <- [leader |-> quorumState.leader, epoch |-> quorumState.leaderEpoch, isr |-> quorumState.isr],
    told <- {[leader |-> d.leader, epoch |-> d.leaderEpoch, isr |-> d.isr] : d \in leaderAndIsrRequests}

Theirs == Init /\ [][Next]_vars
StepsAreOurs == Ours!Spec
==================================================================================
