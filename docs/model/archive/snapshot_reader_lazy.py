#!/usr/bin/env python3
"""All interleavings of readers of snapshots with writers, seals, drops, rollbacks and merges, as
threads.

One page (two in a part) with one slice of two halves, so that a torn read shows. The reader goes by
the engine's reads: the version of the lock word, or the page's deployed stamp, before and after its
copy; a view pins the home slot. A writer flips, deploys, or goes by a redo record over a pinned
page. Slots, index and masks are as in the rules of snapshots: keep, publish in the index, clear the
bit, store. The medium is the business of `snapshot_store.py`.

The gate is a protocol: a mark, a look at the flag; the flag, `membarrier`, a look at the marks. A
look may have happened before the store in front of it, until a membarrier; nothing else is
reordered. A file without a store has no gate: its first seal switches the gate on beside writers.

Each read of a snapshot returns what was sealed. At the end each live snapshot reads as sealed, by
the definition.

Usage: snapshot_reader.py [PART] [MUTANT]      or: snapshot_reader.py --all
"""
import sys

MUTANTS = {
    'version_only': ('flips', 'the reader looks at the version only'),
    'mask_only': ('flips', 'the reader looks at the mask, and not at the version'),
    'bit_late': ('flips', 'the bit is cleared after the first store'),
    'no_close': ('flips', 'masks and word change without an exclusive lock'),
    'not_kept': ('flips', 'the bit is cleared, and nothing is kept'),
    'base_after_store': ('seals', 'the base is published after the store that it speaks of'),
    'index_first': ('stamps', 'a reader by stamps looks at the index before the stamp'),
    'redo_no_keep': ('views', 'a redo record goes over a valid slot that a snapshot reads'),
    'redo_open': ('views', 'a redo record whose lock is not exclusive at its stores'),
    'look_then_pin': ('drops', 'a reader looks for the snapshot before it pins it'),
    'drop_no_look': ('drops', 'a drop does not look for readers'),
    'free_no_wait': ('merges', 'a merge gives bytes back while a read section may copy them'),
    'no_gate': ('seals', 'a seal beside writers'),
    'no_membarrier': ('seals', 'a gate that is closed without a membarrier'),
    'no_wait': ('seals', 'a gate that does not wait for the marks'),
    'look_first': ('seals', 'a writer that looks at the flag before it sets its mark'),
    'l_before_gate': ('seals', 'a writer that reads the newest snapshot before it enters the gate'),
    'switch_no_wait': ('switch', 'a switch that does not wait for operations without a mark'),
    'switch_no_membarrier': ('switch', 'a switch without a membarrier'),
    'switch_no_second_look': ('switch', 'an operation that does not look again under its lock'),
    'roll_opens': ('rolls', 'a rollback that opens the gate between its pages'),
    'roll_unseen': ('rolls', 'readers of the present that do not look for a rollback'),
    'roll_no_wait': ('rolls', 'a rollback that does not wait for the read sections before it'),
}
HARMLESS = {
    'stamp_late': ('stamps', 'the stamp is made even after base, store and word'),
    'anew_early': ('anew', 'bases are said anew before the copy'),
    'index_late': ('flips', 'the bit is cleared before the bytes can be found'),
    'index_again': ('flips', 'the reader looks at the index again in place of the mask'),
}
MUT = 'none'


def where(bases, k, word):
    """Where a snapshot's slice is, by one look at the index."""
    for n, (e, b, kept) in enumerate(bases):
        if e < k:
            continue
        if kept is not None:
            return 'kept', kept
        after = bases[n + 1][1] if n + 1 < len(bases) else word
        if b != after:
            return 'slot', b, n
    return 'valid', word


def start(pages=1):
    m = dict(L=0, live=frozenset(), snaps=(), closed=False, gate=True, dropping=0, pins=0,
             rolling=False)
    for p in range(pages):
        m.update({f'H{p}': (0, 0), f'R{p}': ('x', 'x'), f'word{p}': 0, f'owed{p}': False,
                  f'needed{p}': False,
                  f'epoch{p}': 0, f'bases{p}': (), f'lock{p}': None, f'excl{p}': False, f'ver{p}': 0,
                  f'stamp{p}': 1,
                  f'pin{p}': False, f'val{p}': 0, f'free{p}': ()})
    return m


def sealed(m):
    """One snapshot, as a seal leaves it: `needed` is known when a page is first touched."""
    m['L'] += 1
    m['live'] |= {m['L']}
    m['snaps'] += (tuple(m[k] for k in sorted(m) if k[:3] == 'val'),)


class Thread:
    """Steps with labels. A step returns None (go on), False (wait), or a label."""

    def __init__(s, name):
        s.name, s.steps, s.labels = name, [], {}

    def at(s, label):
        s.labels[label] = len(s.steps)

    def do(s, f):
        s.steps.append(f)


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


def begin(t, uid, p, gates):
    """Gate and lock of an operation on one page. With `gates` the file may have no gate yet."""
    n = t.name
    if MUT == 'l_before_gate':
        t.do(lambda m: m.update({f'l{n}': m['L']}))
    t.at(f'begin{uid}')
    if gates:
        t.do(lambda m: None if m['gate'] else f'skip{uid}')
    enter(t, uid)
    t.do(lambda m: f'lock{uid}')
    t.at(f'skip{uid}')
    # The second look may happen before the lock is seen by others.
    t.do(lambda m: m.update({f'second{n}': m['gate']}))
    t.at(f'lock{uid}')

    def take(m):
        if m[f'lock{p}'] is not None:
            return False
        m[f'lock{p}'] = n
    t.do(take)

    def second(m):
        inside = m.get(f'mark{n}')
        gate = m['gate'] if m.get(f'second{n}') is None else m[f'second{n}']
        m[f'second{n}'] = None
        if gates and not inside and gate and MUT != 'switch_no_second_look':
            m[f'lock{p}'] = None
            return f'begin{uid}'
    t.do(second)


def end(t, p):
    n = t.name

    def unlock(m):
        if m[f'excl{p}']:
            m[f'ver{p}'] += 1
        m[f'excl{p}'] = False
        m[f'lock{p}'] = None
    t.do(unlock)
    t.do(lambda m: m.update({f'mark{n}': False}))


def base(t, p):
    n = t.name

    def stamp(m):
        m[f'stamp{p}'] += m[f'stamp{p}'] % 2

    def publish(m):
        newest = m[f'l{n}'] if MUT == 'l_before_gate' else m['L']
        if newest and not any(e >= newest for e, _, _ in m[f'bases{p}']):
            m[f'bases{p}'] += ((newest, m[f'word{p}'], None),)

    def masks(m):
        newest = m[f'l{n}'] if MUT == 'l_before_gate' else m['L']
        if newest and m[f'epoch{p}'] < newest:
            m[f'needed{p}'], m[f'epoch{p}'] = True, newest
    if MUT != 'stamp_late':
        t.do(stamp)
    if MUT != 'base_after_store':
        t.do(publish)
    t.do(masks)
    return stamp, publish


def keep(m, p, side):
    """Publishes the bytes of a slot for the base by which a live snapshot reads it."""
    bases = m[f'bases{p}']
    for k in sorted(m['live']):
        at = where(bases, k, m[f'word{p}'])
        if at[0] == 'slot' and at[1] == side:
            i = at[2]
        elif at[0] == 'valid' and at[1] == side and bases:
            i = len(bases) - 1
        else:
            continue
        e, b, _ = bases[i]
        bases = bases[:i] + ((e, b, m['HR'[side] + str(p)]),) + bases[i + 1:]
    m[f'bases{p}'] = bases


def slot(m, p, valid):
    w = m[f'word{p}']
    return 'HR'[w if valid else 1 - w] + str(p)


def half(p, h, value, valid=False):
    def f(m):
        k = slot(m, p, valid)
        v = value(m)
        m[k] = (v, m[k][1]) if h == 0 else (m[k][0], v)
    return f


def flip(t, uid, p, value, gates=False):
    """A flip of the page's slice to `value`, a function of the state."""
    begin(t, uid, p, gates)
    flip_locked(t, p, value)
    end(t, p)


def flip_locked(t, p, value):
    stamp, publish = base(t, p)
    held = f'held{t.name}'

    def kept(m):
        m[held] = m[f'owed{p}']
        if m[f'owed{p}'] and MUT not in ('index_late', 'not_kept'):
            keep(m, p, 1 - m[f'word{p}'])

    def bit(m):
        m[f'owed{p}'] = False

    def late(m):
        if m[held]:
            keep(m, p, 1 - m[f'word{p}'])
    t.do(kept)
    halves = [half(p, 0, value), half(p, 1, value)]
    if MUT == 'bit_late':
        order = [halves[0], bit, halves[1]]
    elif MUT == 'index_late':
        order = [bit, late, *halves]
    elif MUT == 'not_kept':
        order = [bit, halves[0], halves[1]]
    else:
        order = [bit, *halves]
    for f in order:
        t.do(f)

    def word(m):
        m[f'word{p}'] = 1 - m[f'word{p}']
        m[f'val{p}'] = value(m)

    def hand(m):
        m[f'owed{p}'], m[f'needed{p}'] = m[f'needed{p}'], False
    if MUT != 'no_close':
        t.do(lambda m: m.update({f'excl{p}': True}))
    t.do(hand)
    t.do(word)
    if MUT == 'base_after_store':
        def publish_late(m):
            newest = m['L']
            if newest and not any(e >= newest for e, _, _ in m[f'bases{p}']):
                m[f'bases{p}'] += ((newest, 1 - m[f'word{p}'], None),)
        t.do(lambda m: m.update({f'excl{p}': False, f'ver{p}': m[f'ver{p}'] + 1}))
        t.do(publish_late)
    if MUT == 'stamp_late':
        t.do(stamp)


def redo(t, uid, p, value):
    """A write by a redo record: the home slot is pinned, and the valid slot is the other one."""
    begin(t, uid, p, False)
    base(t, p)

    def kept(m):
        if m[f'needed{p}'] and MUT != 'redo_no_keep':
            keep(m, p, m[f'word{p}'])
        m[f'needed{p}'] = False
    t.do(kept)
    if MUT != 'redo_open':
        t.do(lambda m: m.update({f'excl{p}': True}))
    t.do(half(p, 0, value, True))
    t.do(half(p, 1, value, True))
    t.do(lambda m: m.update({f'val{p}': value(m)}))
    end(t, p)


def deploy(t, uid, p):
    """The slice comes home: bases are said anew, and the stamp is odd then."""
    begin(t, uid, p, False)

    def kept(m):
        if m[f'owed{p}'] and m[f'word{p}'] == 1:
            keep(m, p, 0)
        if m[f'word{p}'] == 1:
            m[f'owed{p}'] = False

    def anew(m):
        bases = list(m[f'bases{p}'])
        for n in range(len(bases) - 1, -1, -1):
            e, b, kept = bases[n]
            if b != 1 or kept is not None or m[f'word{p}'] != 1:
                break
            bases[n] = (e, 0, kept)
        m[f'bases{p}'] = tuple(bases)

    def copy(h):
        def f(m):
            if m[f'word{p}'] == 1:
                k, r = f'H{p}', m[f'R{p}']
                m[k] = (r[0], m[k][1]) if h == 0 else (m[k][0], r[1])
        return f

    def word(m):
        m[f'word{p}'] = 0

    def stamp(m):
        m[f'stamp{p}'] += 1 - m[f'stamp{p}'] % 2
    t.do(kept)
    if MUT == 'anew_early':
        t.do(anew)
    t.do(copy(0))
    t.do(copy(1))
    t.do(lambda m: m.update({f'excl{p}': True}))
    if MUT != 'anew_early':
        t.do(anew)
    t.do(word)
    t.do(stamp)
    end(t, p)


def membarrier(m):
    """Looks that have happened before a store in front of them happen again."""
    if MUT != 'no_membarrier':
        m.update({k: None for k in m if k.startswith('early')})
    if MUT != 'switch_no_membarrier':
        m.update({k: None for k in m if k.startswith('second')})


def close(t):
    t.do(lambda m: False if m['closed'] else m.update(closed=True))
    t.do(membarrier)
    if MUT not in ('no_wait', 'no_gate'):
        t.do(lambda m: False if any(m[k] for k in m if k.startswith('mark')) else None)


def opens(m):
    m['closed'] = False


def seal(t):
    close(t)
    t.do(sealed)
    t.do(opens)


def switch(t):
    """The first seal of a file without a store."""
    t.do(lambda m: m.update(gate=True))
    t.do(membarrier)
    if MUT != 'switch_no_wait':
        t.do(lambda m: False if m[f'lock{0}'] is not None else None)
    seal(t)


def drop(t, k):
    close(t)
    t.do(lambda m: m.update(dropping=k))

    def look(m):
        if m['pins'] and MUT != 'drop_no_look':
            m['dropping'] = 0
            return
        m['live'] -= {k}
        m['dropping'], m['L'] = 0, max(m['live'], default=0)
        oldest = min(m['live'], default=k + 1)
        m['bases0'] = tuple(b for b in m['bases0'] if b[0] >= oldest)
    t.do(look)
    t.do(opens)


def roll(t):
    """Back to snapshot 1: two pages, one operation for all other threads."""
    close(t)
    t.do(lambda m: m.update(rolling=True))
    if MUT != 'roll_no_wait':
        t.do(lambda m: False if m['section'] else None)
    for p in (0, 1):
        t.do(lambda m, p=p: False if m[f'lock{p}'] is not None else m.update({f'lock{p}': t.name}))
        flip_locked(t, p, lambda m, p=p: m['snaps'][0][p])
        end(t, p)
        if MUT == 'roll_opens' and p == 0:
            t.do(opens)

    def whole(m):
        if (m['val0'], m['val1']) != m['snaps'][0]:
            m['bad'] = f'a rollback ends with {m["val0"]}, {m["val1"]}'
    t.do(whole)
    t.do(lambda m: m.update(rolling=False))
    t.do(opens)


def look_at(m, n, p):
    m[f'ver_{n}{p}'], m[f'excl_{n}{p}'] = m[f'ver{p}'], m[f'excl{p}']


def copy(n, p, h, name):
    """Copies half a slice from where the reader has found it."""
    def f(m):
        at = m[f'at_{n}']
        v = at[1] if at[0] == 'kept' else m['HR'[at[1]] + str(p)]
        m[name] = m[name][:h] + (v[h],)
    return f


def wrong(m, n, k, got):
    if got != (m['snaps'][k - 1][0],) * 2:
        m['bad'] = f'{n}: snapshot {k} reads {got}, not {m["snaps"][k - 1][0]}'


def reader(t, k, pinned=False):
    """A read of snapshot `k`, by the version of the lock word."""
    n = t.name
    got = f'got_{n}'

    def pin(m):
        m['pins'] += 1

    def unpin(m):
        m['pins'] -= pinned

    def is_live(m):
        if k in m['live'] and m['dropping'] != k:
            return None
        if pinned and k <= len(m['snaps']):
            return 'gone'
        return False
    steps = [pin, is_live] if pinned else [is_live]
    for f in steps[::-1] if MUT == 'look_then_pin' else steps:
        t.do(f)
    t.do(lambda m: look_at(m, n, 0))
    t.do(lambda m: m.update({f'o_{n}': m['owed0']}))
    t.do(lambda m: m.update({f'b_{n}': m['bases0']}))
    t.do(lambda m: m.update({f'at_{n}': where(m[f'b_{n}'], k, m['word0'])}))
    t.do(copy(n, 0, 0, got))
    t.do(copy(n, 0, 1, got))
    t.do(lambda m: m.update({f'o2_{n}': m['owed0'], f'b2_{n}': m['bases0']}))

    def again(m):
        same = m['ver0'] == m[f'ver_{n}0'] and not m['excl0'] and not m[f'excl_{n}0']
        at = m[f'at_{n}']
        mask = at[0] != 'slot' or (m[f'o_{n}'] and m[f'o2_{n}'])
        if MUT == 'index_again':
            mask = at[0] != 'slot' or where(m[f'b2_{n}'], k, 1 - at[1])[0] == 'slot'
        holds = {'version_only': same, 'mask_only': mask}.get(MUT, same and mask)
        if at[0] == 'kept' or holds:
            wrong(m, n, k, m[got])
    t.do(again)
    t.at('gone')
    t.do(unpin)


def stamped(t, k):
    """A read of snapshot `k`, by a deployed stamp: no base, and the home slot."""
    n = t.name
    got = f'got_{n}'

    def stamp(m):
        m[f'ver_{n}0'] = m['stamp0']
        m[f'at_{n}'] = ('slot', 0)
        return None if m['stamp0'] % 2 else 'gone'

    def index(m):
        return 'gone' if any(e >= k for e, _, _ in m['bases0']) else None
    t.do(lambda m: None if k in m['live'] else False)
    for f in (index, stamp) if MUT == 'index_first' else (stamp, index):
        t.do(f)
    t.do(copy(n, 0, 0, got))
    t.do(copy(n, 0, 1, got))
    t.do(lambda m: wrong(m, n, k, m[got]) if m['stamp0'] == m[f'ver_{n}0'] else None)
    t.at('gone')


def view(t, k):
    """A view of snapshot `k` has pinned the home slot: its bytes stay."""
    n = t.name
    got = f'got_{n}'
    t.do(lambda m: m.update({f'at_{n}': ('slot', 0)}))
    t.do(copy(n, 0, 0, got))
    t.do(copy(n, 0, 1, got))
    t.do(lambda m: wrong(m, n, k, m[got]))


def present(t):
    """A read of both pages as they are now."""
    n = t.name

    def leave(m):
        m['section'] = False
    t.do(lambda m: m.update(section=True))
    if MUT != 'roll_unseen':
        t.do(lambda m: 'gone' if m['rolling'] else None)
    for p in (0, 1):
        t.do(lambda m, p=p: look_at(m, n, p))
    for p in (0, 1):
        t.do(lambda m, p=p: m.update({f'at_{n}': ('slot', m[f'word{p}'])}))
        t.do(copy(n, p, 0, f'got_{n}'))
        t.do(copy(n, p, 1, f'got_{n}'))
        t.do(lambda m, p=p: m.update({f'p{p}_{n}': m[f'got_{n}']}))

    def again(m):
        if all(m[f'ver{p}'] == m[f'ver_{n}{p}'] and not m[f'excl{p}'] and not m[f'excl_{n}{p}'] for
               p in (0, 1)):
            if (m[f'p0_{n}'], m[f'p1_{n}']) in (((0, 0), (1, 1)), ((1, 1), (0, 0))):
                m['bad'] = f'half a rollback: {m[f"p0_{n}"]}, {m[f"p1_{n}"]}'
    t.do(again)
    t.at('gone')
    t.do(leave)


def moved(m, p, value):
    """The page as a flip after a seal leaves it."""
    k = slot(m, p, False)
    m[f'bases{p}'] += ((m['L'], m[f'word{p}'], None),)
    m[k], m[f'val{p}'], m[f'word{p}'] = (value, value), value, 1 - m[f'word{p}']
    m[f'owed{p}'], m[f'needed{p}'], m[f'epoch{p}'], m[f'stamp{p}'] = True, False, m['L'], 2


def to(value):
    return lambda m: value


def flips(t, *values, gates=False):
    for n, v in enumerate(values):
        flip(t, n, 0, to(v), gates)


def part_of(name):
    """Threads and the state that they begin with."""
    pages = 2 if name == 'rolls' else 1
    m = start(pages)
    a, b, c = Thread('a'), Thread('b'), Thread('c')
    if name == 'flips':
        sealed(m)
        flips(a, 1, 2, 3)
        reader(b, 1)
    elif name == 'seals':
        flips(a, 1, 2)
        seal(b)
        reader(c, 1)
    elif name == 'stamps':
        sealed(m)
        flips(a, 1)
        deploy(a, 'd', 0)
        stamped(b, 1)
        reader(c, 1)
    elif name == 'anew':
        sealed(m)
        moved(m, 0, 1)
        sealed(m)
        # Another slice of the page has moved since: the base says where this one is.
        m.update(bases0=m['bases0'] + ((2, 1, None),), epoch0=2, needed0=True)
        deploy(a, 'd', 0)
        flips(a, 2)
        reader(c, 2)
    elif name == 'views':
        sealed(m)
        moved(m, 0, 1)
        sealed(m)
        redo(a, 0, 0, to(2))
        redo(a, 1, 0, to(3))
        view(b, 1)
        reader(c, 2)
    elif name == 'drops':
        sealed(m)
        moved(m, 0, 1)
        flips(a, 2)
        drop(b, 1)
        reader(c, 1, True)
    elif name == 'merges':
        m.update(A=(1, 1), B=('x', 'x'), index='A', snaps=((1,),))
        b.do(lambda m: m.update(section=True))
        b.do(lambda m: m.update(at_b=m['index']))
        for h in (0, 1):
            b.do(lambda m, h=h: m.update(got_b=m['got_b'][:h] + (m[m['at_b']][h],)))
        b.do(lambda m: m.update(section=False))
        b.do(lambda m: wrong(m, 'b', 1, m['got_b']))
        a.do(lambda m: m.update(B=m['A']))
        a.do(lambda m: m.update(index='B'))
        if MUT != 'free_no_wait':
            a.do(lambda m: False if m['section'] else None)
        a.do(lambda m: m.update(A=('y', m['A'][1])))
        a.do(lambda m: m.update(A=('y', 'y')))
    elif name == 'switch':
        m['gate'] = False
        flips(a, 1, 2, gates=True)
        switch(b)
        reader(c, 1)
    elif name == 'rolls':
        sealed(m)
        moved(m, 0, 1)
        moved(m, 1, 1)
        flip(a, 0, 1, to(5))
        roll(b)
        present(c)
    m.update(section=False, bad=None)
    for t in (a, b, c):
        n = t.name
        m.update({f'mark{n}': False, f'early{n}': None, f'second{n}': None, f'l{n}': 0, f'held{n}':
                  False,
                  f'got_{n}': (), f'at_{n}': None, f'o_{n}': None, f'b_{n}': None, f'o2_{n}': None,
                  f'b2_{n}': None,
                  f'p0_{n}': None, f'p1_{n}': None})
        for p in range(pages):
            m.update({f'ver_{n}{p}': None, f'excl_{n}{p}': None})
    return m, (a, b, c)


PARTS = ('flips', 'seals', 'stamps', 'anew', 'views', 'drops', 'merges', 'switch', 'rolls')


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
        for p in range(2 if part == 'rolls' else 1):
            at = where(m[f'bases{p}'], k, m[f'word{p}'])
            got = at[1] if at[0] == 'kept' else m['HR'[at[1]] + str(p)]
            if got != (m['snaps'][k - 1][p],) * 2:
                if not told:
                    print(f'  {mutant}, {part}: at the end snapshot {k} reads {got}', flush=True)
                return False
    return True


def main():
    if sys.argv[1:] == ['--all']:
        bad = sum(run(part, 'none') for part in PARTS) + sum(run(part, m) for m, (part, _) in
                                                             HARMLESS.items())
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
