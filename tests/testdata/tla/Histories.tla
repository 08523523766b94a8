-------------------------------- MODULE Histories --------------------------------
(* Whether histories of Tidemark's engine are behaviours of ReplicationSteps. Told,  *)
(* which the test writes, holds them: for every event what can be seen of the state   *)
(* after it, and which brokers may have made steps. An event may be several steps, or *)
(* none. How far each history gets is printed.                                        *)

EXTENDS ReplicationSteps, TLC, Told

VARIABLES
    number,  \* of the history
    seen     \* how many of its events have come to pass

IsSeen(b, told_of) ==
    /\ told_of.logIsKnown => log[b] = told_of.log
    /\ told_of.role # "unseen" => hw[b] = told_of.hw /\ epoch[b] = told_of.epoch /\ leader[b] = told_of.leader
    /\ told_of.role = "leader" => isr[b] = told_of.isr

IsState(event) ==
    /\ quorum = event.quorum
    /\ \A b \in Brokers : IsSeen(b, event.brokers[b])

IsBetween(n, from, to) == (from <= n /\ n <= to) \/ (to <= n /\ n <= from)
IsNearer(new, old, goal) == new \ goal \subseteq old /\ goal \ new \subseteq goal \ old

\* Other steps lead nowhere, and those of a broker that is not seen may be left for later; only that it follows may not.
LeadsThere(b, goal) ==
    /\ Len(log'[b]) <= Most(End(b), Len(goal.log))
    /\ IF goal.role = "unseen"
       THEN /\ leader'[b] = b => leader[b] = b
            /\ hw'[b] = Least(hw[b], Len(log'[b]))
       ELSE /\ epoch'[b] <= Most(epoch[b], goal.epoch)
            /\ log'[b] = log[b] /\ epoch'[b] = epoch[b] => IsBetween(hw'[b], hw[b], goal.hw)
            /\ leader'[b] = b /\ epoch'[b] = epoch[b] => IsNearer(isr'[b], isr[b], goal.isr)

LeadsTo(event) ==
    /\ quorum'.epoch <= event.quorum.epoch
    /\ IsNearer(quorum'.isr, quorum.isr, event.quorum.isr)
    /\ \A b \in Brokers : LeadsThere(b, event.brokers[b])

ASSUME \A k \in 1 .. Len(Events) : TLCSet(k, 0)

Begin ==
    /\ Init
    /\ number \in 1 .. Len(Events)
    /\ seen = 0

ComesToPass(event) ==
    /\ IsState(event)
    /\ seen' = seen + 1
    /\ IF TLCGet(number) < seen' THEN TLCSet(number, seen') /\ PrintT(<<"seen", number, seen'>>) ELSE TRUE
    /\ UNCHANGED <<vars, number>>

IsOnTheWay(event) ==
    /\ \/ \E b \in event.acting : StepsOf(b)
       \/ quorum # event.quorum /\ StepsOfController
    /\ LeadsTo(event)
    /\ UNCHANGED <<number, seen>>

Continue ==
    /\ seen < Len(Events[number])
    /\ LET event == Events[number][seen + 1] IN ComesToPass(event) \/ IsOnTheWay(event)

Behaviours == Begin /\ [][Continue]_<<vars, number, seen>>
==================================================================================
