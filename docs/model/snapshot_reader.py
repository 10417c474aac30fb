#!/usr/bin/env python3
"""All interleavings of readers of snapshots with writers, seals, drops, shrinks, rollbacks and
compaction, as threads.

One page (two in a part) with one slice of two halves, so that a torn read shows. A reader of a
snapshot takes the page's lock: under it, record or valid slot stay as they are. A reader of the
present goes by versions. A writer enters the gate of cuts, locks, keeps what has to be kept, and
stores: to the free slot (flip) or over the valid one (direct store, and redo over a pinned page).
Deployment does not enter the gate. The medium is the business of `snapshots_dax.py` and
`snapshot_store.py`.

The gate is a protocol: a mark, a look at the flag; the flag, `membarrier`, a look at the marks. A
look may have happened before the store in front of it, until a membarrier; nothing else is
reordered. A file without snapshots has no gate: its first seal switches the gate on beside writers.

Each read of a snapshot returns what was sealed. At the end each live snapshot reads as sealed, by
the definition. No thread is stuck.

Usage: snapshot_reader.py [PART] [MUTANT]      or: snapshot_reader.py --all
"""
import sys

MUTANTS = {
    'reader_no_lock': ('flips', 'a reader of a snapshot does not take the lock'),
    'reader_early': ('flips', 'a reader looks at the index before it takes the lock'),
    'not_kept': ('flips', 'nothing is kept'),
    'direct_not_kept': ('writers', 'a store over the valid slot keeps nothing'),
    'index_after': ('flips', 'a record can be found only after the unlock'),
    'keep_unlocked': ('writers', 'an operation finds what to keep before it has the lock'),
    'no_gate': ('seals', 'a seal beside writers'),
    'no_membarrier': ('seals', 'a gate that is closed without a membarrier'),
    'no_wait': ('seals', 'a gate that does not wait for the marks'),
    'look_first': ('seals', 'a writer that looks at the flag before it sets its mark'),
    'l_before_gate': ('seals', 'a writer that reads the newest snapshot before it enters the gate'),
    'l_after_gate': ('seals', 'a seal that opens the gate before the newest snapshot is known'),
    'l_without_generation': ('resealed', 'a seal makes no new generation'),
    'switch_no_wait': ('switch', 'a switch that does not wait for operations without a mark'),
    'switch_no_membarrier': ('switch', 'a switch without a membarrier'),
    'switch_no_second_look': ('switch', 'an operation that does not look again under its lock'),
    'switch_second_look_early': ('switch', 'an operation that looks again before its lock'),
    'switch_no_close': ('switch', 'a first seal that waits for locks, and does not close the gate'),
    'look_then_pin': ('drops', 'a reader looks for the snapshot before it holds it'),
    'drop_no_look': ('drops', 'a drop does not look for readers'),
    'merge_no_lock': ('merges', 'compaction moves a record without the lock of its page'),
    'cut_unlocked': ('cuts', 'a shrink keeps without the lock of the page'),
    'seal_in_cut': ('cuts', 'a seal that does not wait for a shrink'),
    'cut_no_keep': ('cuts', 'a shrink keeps nothing'),
    'roll_opens': ('rolls', 'a rollback that opens the gate between its pages'),
    'roll_one_by_one': ('rolls', 'a rollback that closes its pages to readers one by one'),
    'roll_shared': ('rolls', 'a rollback whose pages are locked, and not closed to readers'),
}
HARMLESS = {
    'index_late': ('flips', 'a record can be found after the store, and before the unlock'),
    'no_close': ('flips', 'a word changes without an exclusive lock: a reader of a snapshot waits'),
    'deploy_gated': ('seals', 'deployment enters the gate, too'),
    'cut_in_gate': ('cuts', 'a shrink is inside the gate from its keep to its end'),
}
MUT = 'none'


def found(index, k):
    """The bytes of snapshot k in the oldest record that is not older. None: by the valid slot."""
    of = [(e, v) for e, v in index if e >= k]
    return min(of)[1] if of else None


def start(pages=1):
    m = dict(L=0, gen=0, live=frozenset(), snaps=(), lengths=(), closed=False, gate=True,
             dropping=0, pins=0, resizing=None, length=pages)
    for p in range(pages):
        m.update({f'H{p}': (0, 0), f'R{p}': ('x', 'x'), f'word{p}': 0, f'index{p}': (),
                  f'memo{p}': None, f'lock{p}': None, f'excl{p}': False, f'ver{p}': 0,
                  f'val{p}': 0})
    return m


def newest(m):
    m['L'] = max(m['live'], default=0)
    if MUT != 'l_without_generation':
        m['gen'] += 1


def in_table(m):
    k = len(m['snaps']) + 1
    m['live'] |= {k}
    m['snaps'] += (tuple(m[k] for k in sorted(m) if k[:3] == 'val'),)
    m['lengths'] += (m['length'],)


def sealed(m):
    in_table(m)
    newest(m)


class Thread:
    """Steps with labels. A step returns None (go on), False (wait), or a label."""

    def __init__(s, name):
        s.name, s.steps, s.labels = name, [], {}

    def at(s, label):
        s.labels[label] = len(s.steps)

    def do(s, f):
        s.steps.append(f)


# ---- gate and lock -------------------------------------------------------------------------------


def enter(t, uid):
    """Enters the gate. `early` is a look that has happened before the mark was seen."""
    n, again = t.name, f'enter{uid}'
    if MUT == 'no_gate':
        return
    t.at(again)
    if MUT == 'look_first':
        t.do(lambda m: False if m['closed'] else None)
        t.do(lambda m: m.update({f'mark{n}': True}))
        return
    # The processor may look before its store is seen by others: `early` holds that look.
    t.do(lambda m: m.update({f'early{n}': m['closed']}))
    t.do(lambda m: m.update({f'mark{n}': True}))

    def look(m):
        closed = m[f'early{n}'] if m[f'early{n}'] is not None else m['closed']
        m[f'early{n}'] = None
        if closed:
            m[f'mark{n}'] = False
            return f'shut{uid}'
    t.do(look)
    t.do(lambda m: f'in{uid}')
    t.at(f'shut{uid}')
    t.do(lambda m: False if m['closed'] else again)
    t.at(f'in{uid}')


def lock(t, p):
    n = t.name
    t.do(lambda m: False if m[f'lock{p}'] is not None else m.update({f'lock{p}': n}))


def begin(t, uid, p, gates):
    """Gate and lock of an operation on one page. With `gates` the file may have no gate yet."""
    n = t.name
    if MUT == 'l_before_gate':
        t.do(lambda m: m.update({f'l{n}': m['L'], f'g{n}': m['gen']}))
    t.at(f'begin{uid}')
    if gates:
        t.do(lambda m: None if m['gate'] else f'skip{uid}')
    enter(t, uid)
    t.do(lambda m: f'lock{uid}')
    t.at(f'skip{uid}')
    # The second look may happen before the lock is seen by others.
    t.do(lambda m: m.update({f'second{n}': m['gate']}))
    t.at(f'lock{uid}')
    if MUT == 'keep_unlocked':
        t.do(to_keep(t, p))
    lock(t, p)

    def second(m):
        inside = m.get(f'mark{n}')
        gate = m['gate'] if m.get(f'second{n}') is None else m[f'second{n}']
        if MUT != 'switch_second_look_early':
            m[f'second{n}'] = None
        if gates and not inside and gate and MUT != 'switch_no_second_look':
            m[f'lock{p}'] = None
            return f'begin{uid}'
    t.do(second)


def end(t, p, leave=True):
    n = t.name

    def unlock(m):
        if m[f'excl{p}']:
            m[f'ver{p}'] += 1
        m[f'excl{p}'] = False
        m[f'lock{p}'] = None
    t.do(unlock)
    if leave:
        t.do(lambda m: m.update({f'mark{n}': False}))


def membarrier(m):
    """Looks that have happened before a store in front of them happen again."""
    if MUT != 'no_membarrier':
        m.update({k: None for k in m if k.startswith('early')})
    if MUT not in ('switch_no_membarrier', 'switch_second_look_early'):
        m.update({k: None for k in m if k.startswith('second')})


def close(t):
    t.do(lambda m: False if m['closed'] else m.update(closed=True))
    t.do(membarrier)
    if MUT not in ('no_wait', 'no_gate'):
        t.do(lambda m: False if any(m[k] for k in m if k.startswith('mark')) else None)


def opens(m):
    m['closed'] = False


# ---- writes --------------------------------------------------------------------------------------


def to_keep(t, p):
    """What has to be kept, if anything: L is not 0, and no record that is not older is there."""
    n = t.name

    def todo(m):
        newest_, gen = m['L'], m['gen']
        if MUT == 'l_before_gate':
            newest_, gen = m[f'l{n}'], m[f'g{n}']
        if m[f'memo{p}'] is None or m[f'memo{p}'][0] != gen:
            m[f'memo{p}'] = gen, found(m[f'index{p}'], newest_) is not None
        m[f'todo{n}'] = None
        if newest_ and not m[f'memo{p}'][1] and MUT != 'not_kept':
            m[f'todo{n}'] = newest_, m[slot(m, p, True)]
            m[f'memo{p}'] = gen, True
    return todo


def keep(t, p):
    """Under the lock."""
    n = t.name

    def publish(m):
        if m[f'todo{n}']:
            if any(e == m[f'todo{n}'][0] for e, _ in m[f'index{p}']):
                m['bad'] = f'{n}: two records of epoch {m[f"todo{n}"][0]}'
            m[f'index{p}'] += (m[f'todo{n}'],)
            m[f'todo{n}'] = None
    if MUT != 'keep_unlocked':
        t.do(to_keep(t, p))
    if MUT not in ('index_late', 'index_after'):
        t.do(publish)
    return publish


def slot(m, p, valid):
    w = m[f'word{p}']
    return 'HR'[w if valid else 1 - w] + str(p)


def half(p, h, value, valid=False):
    def f(m):
        k = slot(m, p, valid)
        v = value(m)
        m[k] = (v, m[k][1]) if h == 0 else (m[k][0], v)
    return f


def past_end(t, uid, p):
    """The length is looked at under the lock."""
    t.do(lambda m: f'past{uid}' if p >= m['length'] else None)


def finish(t, uid, p, publish):
    if MUT == 'index_late':
        t.do(publish)
    t.at(f'past{uid}')
    end(t, p, MUT != 'index_after')
    if MUT == 'index_after':
        t.do(publish)
        t.do(lambda m: m.update({f'mark{t.name}': False}))


def flip(t, uid, p, value, gates=False):
    """A flip of the page's slice to `value`, a function of the state."""
    begin(t, uid, p, gates)
    past_end(t, uid, p)
    publish = keep(t, p)
    stores(t, p, value)
    finish(t, uid, p, publish)


def stores(t, p, value):
    t.do(half(p, 0, value))
    t.do(half(p, 1, value))
    if MUT not in ('no_close', 'roll_shared'):
        t.do(lambda m: m.update({f'excl{p}': True}))
    t.do(lambda m: m.update({f'word{p}': 1 - m[f'word{p}'], f'val{p}': value(m)}))


def direct(t, uid, p, value):
    """Over the valid slot: a direct store, and redo over a pinned page."""
    begin(t, uid, p, False)
    past_end(t, uid, p)
    publish = keep(t, p) if MUT != 'direct_not_kept' else lambda m: None
    t.do(lambda m: m.update({f'excl{p}': True}))
    t.do(half(p, 0, value, True))
    t.do(half(p, 1, value, True))
    t.do(lambda m: m.update({f'val{p}': value(m)}))
    finish(t, uid, p, publish)


def deploy(t, uid, p):
    """The slice comes home. No gate: the content does not change, and no record does."""
    if MUT == 'deploy_gated':
        enter(t, uid)
    lock(t, p)

    def copy(h):
        def f(m):
            if m[f'word{p}'] == 1:
                k, r = f'H{p}', m[f'R{p}']
                m[k] = (r[0], m[k][1]) if h == 0 else (m[k][0], r[1])
        return f
    t.do(copy(0))
    t.do(copy(1))
    t.do(lambda m: m.update({f'excl{p}': True}))
    t.do(lambda m: m.update({f'word{p}': 0}))
    end(t, p)
    # The reflection slot is free now.
    lock(t, p)
    t.do(lambda m: m.update({f'R{p}': ('hole', 'hole')}) if m[f'word{p}'] == 0 else None)
    end(t, p)


def cut(t):
    """A shrink: page 0 is past the new end. Other threads may write between its steps."""
    n = t.name
    t.do(lambda m: False if m['resizing'] else m.update(resizing=n))
    enter(t, 'cut')
    if MUT == 'cut_unlocked':
        t.do(lambda m: m.update({f'got_{n}': (m['HR'[m['word0']] + '0'][0],),
                                 f'at_{n}': 'HR'[m['word0']] + '0'}))
        t.do(lambda m: m.update({f'got_{n}': (*m[f'got_{n}'], m[m[f'at_{n}']][1])}))
    else:
        lock(t, 0)

    def kept(m):
        bytes_ = m[f'got_{n}'] if MUT == 'cut_unlocked' else m['HR'[m['word0']] + '0']
        if m['L'] and bytes_ != (0, 0) and found(m['index0'], m['L']) is None:
            m['index0'] += ((m['L'], bytes_),)
            m['memo0'] = m['gen'], True
    if MUT != 'cut_no_keep':
        t.do(kept)
    gated = MUT == 'cut_in_gate'
    if MUT != 'cut_unlocked':
        end(t, 0, not gated)
    t.do(lambda m: m.update({f'mark{n}': gated}))
    t.do(lambda m: m.update(length=0))
    lock(t, 0)
    t.do(lambda m: m.update(excl0=True))
    for h in (0, 1):
        t.do(half(0, h, to(0), True))
        t.do(half(0, h, to(0)))
    t.do(lambda m: m.update(val0=0))
    end(t, 0)
    t.do(lambda m: m.update(resizing=None))


# ---- seals, drops, rollback ----------------------------------------------------------------------


def seal(t, is_closed=True):
    if MUT != 'seal_in_cut':
        t.do(lambda m: False if m['resizing'] else m.update(resizing=t.name))
    if is_closed:
        close(t)
    t.do(in_table)
    if MUT == 'l_after_gate':
        t.do(opens)
        t.do(newest)
    else:
        t.do(newest)
        t.do(opens)
    t.do(lambda m: m.update(resizing=None) if m['resizing'] == t.name else None)


def switch(t):
    """The first seal of a file without snapshots."""
    t.do(lambda m: m.update(gate=True))
    t.do(membarrier)
    if MUT != 'switch_no_wait':
        t.do(lambda m: False if m['lock0'] is not None else None)
    seal(t, MUT != 'switch_no_close')


def drop(t, k):
    t.do(lambda m: m.update(dropping=k))

    def look(m):
        if m['pins'] and MUT != 'drop_no_look':
            m['dropping'] = 0
            return 'refused'
    t.do(look)
    t.do(lambda m: m.update(live=m['live'] - {k}, dropping=0))
    close(t)
    t.do(newest)
    t.do(opens)

    def free(m):
        index = sorted(m['index0'])
        m['index0'] = tuple(
            (e, v) for n, (e, v) in enumerate(index)
            if any((index[n - 1][0] if n else 0) < j <= e for j in m['live']))
    t.do(free)
    t.at('refused')


def roll(t):
    """Back to snapshot 1: two pages, one operation for all other threads."""
    t.do(lambda m: False if m['resizing'] else m.update(resizing=t.name))
    close(t)
    t.do(sealed)                                  # the undo snapshot, with the intention
    pages = (0, 1)
    one_by_one = MUT in ('roll_one_by_one', 'roll_opens')
    for p in () if one_by_one else pages:
        lock(t, p)
    for p in () if one_by_one or MUT == 'roll_shared' else pages:
        t.do(lambda m, p=p: m.update({f'excl{p}': True}))
    for p in pages:
        if one_by_one:
            lock(t, p)
        keep(t, p)
        stores(t, p, lambda m, p=p: m['snaps'][0][p])
        if one_by_one:
            end(t, p)
        if MUT == 'roll_opens' and p == 0:
            t.do(opens)

    def whole(m):
        if (m['val0'], m['val1']) != m['snaps'][0]:
            m['bad'] = f'a rollback ends with {m["val0"]}, {m["val1"]}'
    t.do(whole)
    for p in () if one_by_one else pages:
        end(t, p)
    t.do(opens)
    t.do(lambda m: m.update(resizing=None))


# ---- readers -------------------------------------------------------------------------------------


def wrong(m, n, k, got):
    if got != (m['snaps'][k - 1][0],) * 2:
        m['bad'] = f'{n}: snapshot {k} reads {got}, not {m["snaps"][k - 1][0]}'


def reader(t, k, pinned=False):
    """A read of snapshot `k`, under the lock of the page."""
    n = t.name

    def pin(m):
        m['pins'] += 1

    def unpin(m):
        m['pins'] -= pinned

    def is_live(m):
        if k in m['live'] and m['dropping'] != k:
            return None
        return 'gone' if pinned and k <= len(m['snaps']) else False
    steps = [pin, is_live] if pinned else [is_live]
    for f in steps[::-1] if MUT == 'look_then_pin' else steps:
        t.do(f)

    def look(m):
        by = found(m['index0'], k)
        if by is None and m['length'] == 0:
            by = (0, 0)
        m[f'at_{n}'] = by or slot(m, 0, True)
    if MUT == 'reader_early':
        t.do(look)
    if MUT != 'reader_no_lock':
        lock(t, 0)
    if MUT != 'reader_early':
        t.do(look)
    for h in (0, 1):
        def copy(m, h=h):
            at = m[f'at_{n}']
            m[f'got_{n}'] = m[f'got_{n}'][:h] + ((m[at] if type(at) is str else at)[h],)
        t.do(copy)
    t.do(lambda m: wrong(m, n, k, m[f'got_{n}']))
    if MUT != 'reader_no_lock':
        end(t, 0)
    t.at('gone')
    t.do(unpin)


def present(t):
    """A read of both pages as they are now, by versions."""
    n = t.name

    def look(m, p):
        m[f'ver_{n}{p}'], m[f'excl_{n}{p}'] = m[f'ver{p}'], m[f'excl{p}']
    for p in (0, 1):
        t.do(lambda m, p=p: look(m, p))
    for p in (0, 1):
        t.do(lambda m, p=p: m.update({f'at_{n}': 'HR'[m[f'word{p}']] + str(p)}))
        for h in (0, 1):
            t.do(lambda m, h=h: m.update({f'got_{n}': m[f'got_{n}'][:h] + (m[m[f'at_{n}']][h],)}))
        t.do(lambda m, p=p: m.update({f'p{p}_{n}': m[f'got_{n}']}))

    def again(m):
        if all(m[f'ver{p}'] == m[f'ver_{n}{p}'] and not m[f'excl{p}'] and not m[f'excl_{n}{p}']
               for p in (0, 1)):
            if (m[f'p0_{n}'], m[f'p1_{n}']) in (((0, 0), (1, 1)), ((1, 1), (0, 0))):
                m['bad'] = f'half a rollback: {m[f"p0_{n}"]}, {m[f"p1_{n}"]}'
    t.do(again)


def merge(t):
    """Compaction: a record is said again elsewhere, and its old place is used for other bytes."""
    t.do(lambda m: m.update(B=m['A']))
    if MUT != 'merge_no_lock':
        lock(t, 0)
    t.do(lambda m: m.update(where='B'))
    if MUT != 'merge_no_lock':
        end(t, 0)
    t.do(lambda m: m.update(A=('y', m['A'][1])))
    t.do(lambda m: m.update(A=('y', 'y')))


def moved(m, p, value):
    """The page as a flip after a seal leaves it."""
    m[f'index{p}'] += ((m['L'], m[slot(m, p, True)]),)
    m[f'memo{p}'] = m['gen'], True
    m[slot(m, p, False)] = (value, value)
    m[f'val{p}'], m[f'word{p}'] = value, 1 - m[f'word{p}']


def to(value):
    return lambda m: value


def flips(t, *values, gates=False):
    for n, v in enumerate(values):
        flip(t, n, 0, to(v), gates)


# ---- parts ---------------------------------------------------------------------------------------


def part_of(name):
    """Threads and the state that they begin with."""
    pages = 2 if name == 'rolls' else 1
    m = start(pages)
    a, b, c = Thread('a'), Thread('b'), Thread('c')
    if name == 'flips':
        sealed(m)
        flips(a, 1, 2)
        direct(a, 'x', 0, to(3))
        reader(b, 1)
        deploy(c, 'd', 0)
    elif name == 'writers':
        sealed(m)
        flips(a, 1, 3)
        direct(b, 'x', 0, to(2))
        reader(c, 1)
    elif name == 'seals':
        flips(a, 1, 2)
        seal(b)
        deploy(b, 'd', 0)
        reader(c, 1)
    elif name == 'resealed':
        sealed(m)
        moved(m, 0, 1)
        flips(a, 2, 3)
        seal(b)
        reader(c, 2)
    elif name == 'deploys':
        sealed(m)
        moved(m, 0, 1)
        deploy(a, 'd', 0)
        flips(a, 2)
        seal(b)
        reader(c, 2)
    elif name == 'drops':
        sealed(m)
        moved(m, 0, 1)
        flips(a, 2)
        drop(b, 1)
        reader(c, 1, True)
    elif name == 'older':
        # The newest is dropped: its record serves the older one.
        sealed(m)
        sealed(m)
        flips(a, 2, 3)
        drop(b, 2)
        reader(c, 1)
    elif name == 'merges':
        sealed(m)
        m.update(A=(0, 0), B=('x', 'x'), where='A')
        lock(b, 0)
        b.do(lambda m: m.update(at_b=m['where']))
        for h in (0, 1):
            b.do(lambda m, h=h: m.update(got_b=m['got_b'][:h] + (m[m['at_b']][h],)))
        b.do(lambda m: wrong(m, 'b', 1, m['got_b']))
        end(b, 0)
        merge(a)
    elif name == 'switch':
        m['gate'] = False
        flips(a, 1, 2, gates=True)
        switch(b)
        reader(c, 1)
    elif name == 'cuts':
        flips(c, 1)
        reader(c, 1)
        sealed(m)
        moved(m, 0, 5)
        sealed(m)
        cut(a)
        seal(b)
        flip(b, 0, 0, to(7))
        reader(b, 2)
    elif name == 'zeroes':
        # A shrink that finds zeroes keeps nothing: a write after its look keeps them itself.
        sealed(m)
        cut(a)
        flips(b, 7)
        reader(c, 1)
    elif name == 'rolls':
        sealed(m)
        moved(m, 0, 1)
        moved(m, 1, 1)
        flip(a, 0, 1, to(5))
        roll(b)
        present(c)
    m.update(bad=None)
    for t in (a, b, c):
        n = t.name
        m.update({f'mark{n}': False, f'early{n}': None, f'second{n}': None, f'l{n}': 0, f'g{n}': 0,
                  f'todo{n}': None, f'got_{n}': (), f'at_{n}': None, f'p0_{n}': None,
                  f'p1_{n}': None})
        for p in range(pages):
            m.update({f'ver_{n}{p}': None, f'excl_{n}{p}': None})
    return m, (a, b, c)


PARTS = ('flips', 'writers', 'seals', 'resealed', 'deploys', 'drops', 'older', 'merges', 'switch',
         'cuts', 'zeroes', 'rolls')


def run(part, mutant):
    """Every interleaving. Stops at the first violation of a mutant."""
    global MUT
    MUT = mutant
    m, threads = part_of(part)
    seen, stack, bad, ends = set(), [((0, 0, 0), m)], 0, 0
    while stack and not (bad and mutant in MUTANTS):
        at, m = stack.pop()
        key = (at, tuple(m.values()))
        if key in seen:
            continue
        seen.add(key)
        moves = 0
        for i, t in enumerate(threads):
            if at[i] == len(t.steps):
                continue
            n = dict(m)
            to_ = t.steps[at[i]](n)
            if to_ is False:
                continue
            moves += 1
            next_ = t.labels[to_] if isinstance(to_, str) else at[i] + 1
            stack.append((at[:i] + (next_,) + at[i + 1:], n))
            if n['bad'] and not m['bad']:
                bad += 1
                if bad == 1:
                    print(f'  {mutant}, {part}: {n["bad"]}', flush=True)
        if moves == 0:
            ends += 1
            if any(at[i] < len(t.steps) for i, t in enumerate(threads)):
                bad += 1
                print(f'  {mutant}, {part}: stuck at {at}', flush=True)
            elif part != 'merges':
                bad += not all_read(m, mutant, part, bad)
    print(f'{mutant}, {part}: {len(seen)} states, {ends} ends, {bad} violations', flush=True)
    return bad


def all_read(m, mutant, part, told):
    for k in m['live']:
        for p in range(m['lengths'][k - 1]):
            got = found(m[f'index{p}'], k)
            if got is None:
                got = m[slot(m, p, True)] if p < m['length'] else (0, 0)
            if got != (m['snaps'][k - 1][p],) * 2:
                if not told:
                    print(f'  {mutant}, {part}: at the end snapshot {k} reads {got}', flush=True)
                return False
    return True


def main():
    if sys.argv[1:] == ['--all']:
        bad = sum(run(part, 'none') for part in PARTS)
        bad += sum(run(part, m) for m, (part, _) in HARMLESS.items())
        for m, (part, what) in MUTANTS.items():
            if not run(part, m):
                bad += 1
                print(f'  NOT FOUND: {m}: {what}')
        return bad != 0
    mutant = sys.argv[2] if len(sys.argv) > 2 else 'none'
    parts = sys.argv[1:2] if sys.argv[1:] else PARTS
    return (sum(run(part, mutant) for part in parts) != 0) != (mutant in MUTANTS)


if __name__ == '__main__':
    sys.exit(main())
