"""The turn engine: ``decide`` (what is due) and ``interpret`` (what an outcome means).

Reading order: ``decide`` (the order of everything), ``signals`` (what happened outside, and what
is written about it), ``interpret`` (which rule a signal is for), ``intake`` (what arrives),
``steps`` and ``calls`` (what a model says), ``stop`` (what ends a turn, a session or a run),
``endings`` (what their ends are on record), ``child_calls``, ``child_starts`` and ``takeover``
(runs below this one), ``recovery`` (coming back after a crash).

What a run is at
----------------
A run is in one of these states.  None is stored: each follows from the thread, the fold of the
run's own events, so that after a crash the run is where it was, except for a call that must not be
run again.  From ``session`` to ``parked`` it is live; ``child``, ``frame`` and ``pause`` cost no
task, and ``parked`` no memory.

    new        opened, and nothing taken yet
    session    in a session: the model is asked, or is about to be
    open call  tools run; nothing is asked of the model until each call has its result
    child      calls wait for children's results
    frame      a call's child has the conversation
    pause      a call waits for a person: an answer, an approval, a result from elsewhere
    idle       between sessions, in memory
    parked     between sessions, out of memory until something arrives
    ended      its terminal record is written

What happens in each, and the state after it; what leads back to the same state is left out.  The
lines are written by a walk through everything that can happen (``tests/support/run_states.py``).

    new       ──► session    opened
              ──► idle       opened
    session   ──► open call  a call
              ──► pause      a call
              ──► idle       a text, interrupted, the model failed
              ──► ended      a text, its deadline, its loop failed, terminated, the model failed
    open call ──► session    a crash, a tool returned, it is refused, its child is started
              ──► child      its child is started
              ──► frame      its child is started
              ──► pause      a crash, a tool returned
              ──► idle       interrupted
              ──► ended      its deadline, its loop failed, terminated
    child     ──► session    its result
              ──► open call  its result
              ──► idle       interrupted
              ──► ended      its deadline, its loop failed, terminated
    frame     ──► session    its result
              ──► open call  its result
              ──► idle       interrupted
              ──► ended      its deadline, its loop failed, terminated
    pause     ──► session    a message, closed, denied, its answer, nobody answered
              ──► open call  a message, approved, closed, denied, its answer, nobody answered
              ──► idle       interrupted
              ──► ended      its deadline, its loop failed, terminated
    idle      ──► session    a child's result, a message
              ──► parked     nothing is due
              ──► ended      its deadline, its loop failed, nothing is due, terminated
    parked    ──► session    a child's result, a message
              ──► idle       closed, interrupted
              ──► ended      its deadline, terminated
"""
