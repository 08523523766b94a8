---------------------------- MODULE ReplicationSteps ----------------------------
(* The steps of the Kip320 specification of hachikuji/kafka-specification, written  *)
(* anew for Tidemark: the same guards and effects over variables that the engine's  *)
(* state can be compared with. SameSteps.tla says what stands for what, and lets    *)
(* TLC compare the two.                                                             *)
(*                                                                                  *)
(* A log is the sequence of its records' epochs. That is enough: an epoch has one   *)
(* leader, which never cuts its log in it, so that what two logs have at an offset  *)
(* is the same record if and only if it is of the same epoch.                       *)

EXTENDS Integers, Sequences

CONSTANTS
    Brokers,  \* their names
    Also      \* which of the steps at the end may be taken, by name; none in Kip320

Nobody == "NONE"
Never == -1

VARIABLES
    log,     \* what each broker has, as a sequence of epochs
    hw,      \* each broker's high watermark
    epoch,   \* the leader epoch in which each broker has its role
    leader,  \* whom it takes for the leader
    isr,     \* the ISR that it was told of, or that it committed as a leader
    quorum,  \* what the controller decided last
    told     \* the decisions that brokers may hear of, each at any time or never

vars == <<log, hw, epoch, leader, isr, quorum, told>>

Least(a, b) == IF a < b THEN a ELSE b
Most(a, b) == IF a > b THEN a ELSE b
End(b) == Len(log[b])

Init ==
    /\ log = [b \in Brokers |-> <<>>]
    /\ hw = [b \in Brokers |-> 0]
    /\ epoch = [b \in Brokers |-> Never]
    /\ leader = [b \in Brokers |-> Nobody]
    /\ isr = [b \in Brokers |-> {}]
    /\ quorum = [leader |-> Nobody, epoch |-> Never, isr |-> Brokers]
    /\ told = {}

Leads(b) == leader[b] = b
LeadsIndeed(b) == Leads(b) /\ quorum.leader = b /\ quorum.epoch = epoch[b]
Follows(f, l) == Leads(l) /\ leader[f] = l /\ epoch[f] = epoch[l]

---------------------------------------------------------------------------------
(* The controller *)

Decides(newLeader, newIsr) ==
    LET decision == [leader |-> newLeader, epoch |-> quorum.epoch + 1, isr |-> newIsr]
    IN  /\ quorum' = decision
        /\ told' = told \union {decision}
        /\ UNCHANGED <<log, hw, epoch, leader, isr>>

Elects == \E b \in quorum.isr : quorum.leader # b /\ Decides(b, quorum.isr)

\* A broker is gone. A leader that is the last member of the ISR stays in it; either way nobody leads then.
Removes == \E b \in quorum.isr :
    LET others == quorum.isr \ {b}
    IN  IF quorum.leader = b
        THEN Decides(Nobody, IF others = {} THEN {b} ELSE others)
        ELSE Decides(quorum.leader, others)

ControllerSteps == Elects \/ Removes

---------------------------------------------------------------------------------
(* Brokers *)

BecomesLeader(b) == \E decision \in told :
    /\ decision.leader = b
    /\ decision.epoch > epoch[b]
    /\ epoch' = [epoch EXCEPT ![b] = decision.epoch]
    /\ leader' = [leader EXCEPT ![b] = b]
    /\ isr' = [isr EXCEPT ![b] = decision.isr]
    /\ UNCHANGED <<log, hw, quorum, told>>

\* Up to where two logs are the same, seen from the end: behind the last record that both have at the same offset.
SharedEnd(f, l) ==
    LET shared == {0} \union {n \in 1 .. Least(End(f), End(l)) : log[f][n] = log[l][n]}
    IN  CHOOSE n \in shared : \A other \in shared : other <= n

\* With its new epoch a follower cuts its log by its leader's, and only by one that has this epoch, too. (Kip320 means
\* brokers to hear of decisions that name no leader, as well, but picks the leader among the replicas, so none does.)
BecomesFollower(f) == \E decision \in told :
    /\ decision.leader \notin {f, Nobody}
    /\ decision.epoch > epoch[f]
    /\ Leads(decision.leader)
    /\ epoch[decision.leader] = decision.epoch
    /\ epoch' = [epoch EXCEPT ![f] = decision.epoch]
    /\ leader' = [leader EXCEPT ![f] = decision.leader]
    /\ isr' = [isr EXCEPT ![f] = decision.isr]
    /\ LET end == SharedEnd(f, decision.leader)
       IN  /\ log' = [log EXCEPT ![f] = SubSeq(@, 1, end)]
           /\ hw' = [hw EXCEPT ![f] = Least(@, end)]
    /\ UNCHANGED <<quorum, told>>

Writes(b) ==
    /\ Leads(b)
    /\ log' = [log EXCEPT ![b] = Append(@, epoch[b])]
    /\ UNCHANGED <<hw, epoch, leader, isr, quorum, told>>

\* A record more, and the HW that the leader has.
Fetches(f) == \E l \in Brokers :
    /\ Follows(f, l)
    /\ End(f) < End(l)
    /\ log' = [log EXCEPT ![f] = Append(@, log[l][End(f) + 1])]
    /\ hw' = [hw EXCEPT ![f] = Least(hw[l], End(f) + 1)]
    /\ UNCHANGED <<epoch, leader, isr, quorum, told>>

\* Whoever is granted to join counts already. (In Kip320 the two sets are equal wherever the second is asked for.)
RaisesHw(l) ==
    /\ hw[l] < End(l)
    /\ \A f \in isr[l] \union (IF LeadsIndeed(l) THEN quorum.isr ELSE {}) : Follows(f, l) /\ hw[l] < End(f)
    /\ hw' = [hw EXCEPT ![l] = @ + 1]
    /\ UNCHANGED <<log, epoch, leader, isr, quorum, told>>

CommitsIsr(l, newIsr) ==
    /\ LeadsIndeed(l)
    /\ isr' = [isr EXCEPT ![l] = newIsr]
    /\ quorum' = [quorum EXCEPT !.isr = newIsr]
    /\ UNCHANGED <<log, hw, epoch, leader, told>>

Shrinks(l) == \E f \in isr[l] \ {l} :
    /\ ~Follows(f, l) \/ End(f) < End(l)
    /\ CommitsIsr(l, isr[l] \ {f})

\* Whoever has what is committed may join, once the HW has reached the leader's own epoch; in Kafka (KAFKA-7128) also
\* earlier, if it has all from before that epoch.
MayJoin(f, l) ==
    /\ Follows(f, l)
    /\ hw[l] <= End(f)
    /\ IF hw[l] = End(l) THEN TRUE
       ELSE IF log[l][hw[l] + 1] = epoch[l] THEN TRUE
       ELSE "joins_at_epoch_start" \in Also /\ \A n \in 1 .. End(l) : log[l][n] < epoch[l] => n <= End(f)

Expands(l) == \E f \in Brokers \ isr[l] :
    /\ MayJoin(f, l)
    /\ CommitsIsr(l, isr[l] \union {f})

BrokerSteps(b) ==
    \/ BecomesLeader(b) \/ BecomesFollower(b) \/ Writes(b) \/ Fetches(b) \/ RaisesHw(b) \/ Shrinks(b) \/ Expands(b)

---------------------------------------------------------------------------------
(* What Kafka does and Kip320 has no step for *)

\* An answer tells of a HW without records as well, and of one that the leader has passed by the time it is applied.
IsToldHw(f) == \E l \in Brokers \ {f} :
    /\ "told_hw" \in Also
    /\ Follows(f, l)
    /\ \E known \in 0 .. Least(hw[l], End(f)) : hw' = [hw EXCEPT ![f] = known]
    /\ UNCHANGED <<log, epoch, leader, isr, quorum, told>>

\* A leader hears of the ISR that was decided.
TakesIsr(l) ==
    /\ "takes_isr" \in Also
    /\ CommitsIsr(l, quorum.isr)

\* The controller grants what the leader asked for before the leader hears of it; Kip320 lets both happen at once. And
\* who is to leave need not lag: a leader knows where a follower was when it last asked, not where it is.
Grants == \E b \in Brokers :
    /\ "grants_before_it_is_heard" \in Also
    /\ quorum.leader # Nobody
    /\ LET l == quorum.leader
       IN  /\ LeadsIndeed(l)
           /\ b # l
           /\ IF b \in quorum.isr
              THEN quorum' = [quorum EXCEPT !.isr = @ \ {b}]
              ELSE /\ MayJoin(b, l)
                   /\ quorum' = [quorum EXCEPT !.isr = @ \union {b}]
    /\ UNCHANGED <<log, hw, epoch, leader, isr, told>>

FurtherSteps(b) == IsToldHw(b) \/ TakesIsr(b)

---------------------------------------------------------------------------------

StepsOf(b) == BrokerSteps(b) \/ FurtherSteps(b)
StepsOfController == ControllerSteps \/ Grants
Next == StepsOfController \/ \E b \in Brokers : StepsOf(b)
Spec == Init /\ [][Next]_vars

HaveTheSame(a, b, end) == end <= End(a) /\ end <= End(b) /\ \A n \in 1 .. end : log[a][n] = log[b][n]

LeaderInIsr == quorum.leader # Nobody => quorum.leader \in quorum.isr
WeakIsr == \A l \in Brokers : Leads(l) => \A f \in isr[l] : HaveTheSame(l, f, hw[l])
StrongIsr == \A l \in Brokers : Leads(l) => \A f \in quorum.isr : HaveTheSame(l, f, hw[l])
=================================================================================
