#!/usr/bin/env python3
"""Brute-force check of the sums of pages: rules B1 to B19 of docs/protocols/sums.md.

Two pages of two slices. A slice has two slots, H and R. A page has a word, a durable word, and three
places for its sum. The length counts slices, so it may cut a page. A sum is linear: here it is the
slices themselves, and an operation reckons it by exclusive or, as the engine does.

Medium `dax`: what is stored is flushed, and a drain makes it durable. A crash leaves of each cell
any value since that. Medium `cache`: a death leaves all stores up to a step. A power loss leaves of
each cell any value since the last sync of its file. A record of the journal is durable after its
write. Opening then goes back to the last record.

Each operation is of another thread than the one before. What a thread has stored past the cache and
not drained may arrive over what later threads store and drain.

After each store the model takes each image and recovers it. The state must be that before or after
the operation, or that of the last record. Each page must have its sum in a place. Then one slot,
word or place of the image is spoiled, or all slots of a page in one file are lost to zeroes. The
first touch must notice it, or it is harmless. It may bring back a state that a crash could have
left as well, and no other. At last an operation runs on the spoiled image. No damaged slice may get
a sum, or be kept for a snapshot.

Usage: page_sums.py [DEPTH] [MUTANT]      or: page_sums.py --all [DEPTH]      or: page_sums.py --quick
"""
import itertools
import random
import sys

from page_sums_machine import (BAD, Damaged, MUT, PAGES, STATS, Sim, Violation, content, first_image, pages_of, passes,
                               read, recover)

MUTANTS = {
    'sum_not_flushed': 'the first drain of a flip does not order its sum',
    'word_before_sum': 'the word of a flip is stored before its sum',
    'redo_sums_undrained': 'no drain between the sums and a redo record',
    'cut_sum_undrained': 'no drain between the sum of a cut page and the length',
    'logged': 'a logged flip has its sum in its only drain',
    'over_present': 'a new sum goes over the present one',
    'over_durable': 'a new sum goes over that of the last durable point',
    'not_published': 'a commit does not make its place the present one',
    'record_without_sums': 'a record of the journal has no sums',
    'replay_without_sums': 'a replay stores no sums',
    'durable_not_published': 'a point does not move the durable place',
    'durable_early': 'an operation moves the durable place',
    'cut_not_noted': 'a page that only a shrink has cut is not in the next point',
    'redo_cut_not_noted': 'a shrink that writes elsewhere does not note the page that it cuts (as first built)',
    'cut_sum_stays': 'a shrink leaves the sum of the page that it cuts',
    'past_not_zeroed': 'sums past the length stay',
    'past_after_mark': 'sums past the length are zeroed behind the high-water word',
    'unverified_anew': 'a write into a page that was not verified reckons its sum anew',
    'damaged_owed': 'a damaged page is replaced although a snapshot reads slices of it',
    'cut_kept_unverified': 'a shrink keeps slices of pages that it has not verified (as first built)',
    'point_keeps_unverified': 'a point keeps slices of a damaged page that was only brought home (as first built)',
    'roll_unverified': 'a rollback says that it is under way before it has verified its pages (as first built)',
    'roll_not_accepted': 'an opening that finishes a rollback verifies its pages',
    'accepted_not_stored': 'an opening that finishes a rollback stores no sums of the pages that it takes (as first built)',
    'roll_not_stored': 'a rollback stores no sums',
    'stale_left': 'a commit leaves sums of older states of its pages',
    'stale_left_by_point': 'a durable point leaves the sum of the one before it',
    'stale_left_by_crash': 'the first touch of a page leaves the sums of older states',
    'stale_streamed': 'a store past the cache, which no drain follows, replaces the sum of an older state (as first built)',
    'stale_replaced_early': 'a change replaces the sum of the present before its commit',
    'flag_early': 'the superblock says that there are sums before they are durable',
    'old_not_zeroed': 'a file that gets sums keeps those that an earlier session has left',
    'flag_stays': 'a session without sums leaves the flag',
}
HARMLESS = {
    'undo_sum_late': 'the sums of an undo record are stored with its words: until its end the words are taken back',
    'cut_verified_always': 'a shrink verifies all pages that it cuts off, with or without a snapshot',
}


# ---- damage --------------------------------------------------------------------------------------

def spoilings(m):
    for p in pages_of(m['L']):
        for i in (2 * p, 2 * p + 1):
            yield from ((p, k, m[k] ^ BAD) for k in (f'H{i}', f'R{i}'))
        yield from ((p, f'W{p}', word) for word in itertools.product((0, 1), repeat=2) if word != m[f'W{p}'])
        yield from ((p, f'S{p}{k}', (BAD, 1)) for k in range(3))


def check_spoiled(m, passing):
    """Spoils one cell of an image, or loses a block, and touches its page."""
    if m['F'] != 1 or m['I'] is not None:
        return
    lost = ((p, {f'{f}{i}': 0 for i in (2 * p, 2 * p + 1)}) for p in pages_of(m['L']) for f in 'HR')
    for p, cells in itertools.chain(((p, {k: v}) for p, k, v in spoilings(m)), lost):
        STATS['spoiled'] += 1
        image = m | cells
        now = content(image, p)
        if not passes(image, p) or now == content(m, p):
            continue
        if now in passing[p]:
            STATS['other'] += 1
            continue
        raise Violation(f'{cells} spoiled: page {p} passes with {now}, was {content(m, p)}')


def check_operation_on_spoiled(sim, m, medium, more):
    """One operation on an image with a damaged slice, and then a close."""
    if m['F'] != 1 or m['I'] is not None:
        return
    for p, k, v in spoilings(m):
        if k[0] not in 'HR' or content(m | {k: v}, p) == content(m, p):
            continue
        for op in operations(m):
            t = Sim(medium, m | {k: v}, sim.passing, spoiled=True)
            did = []
            for name in (op, *more(t)):
                did.append(name)
                try:
                    perform(t, name)
                except Damaged:
                    if t.cur('I') is not None:
                        # The handle is poisoned. The next opening finishes the rollback.
                        t = Sim(medium, recover(t.now()), t.passing, spoiled=True)
                        t.finish_rollback()
                end = recover(t.now())
                for q in pages_of(end['L']):
                    if any(x & BAD for x in content(end, q)) and end['F'] == 1 and passes(end, q):
                        raise Violation(f'{k} spoiled, then {did}: page {q} passes with {content(end, q)}')
                if end['K'] and any(x & BAD for _, x in end['K'][1]):
                    raise Violation(f'{k} spoiled, then {did}: a snapshot has kept damage: {end["K"]}')


# ---- histories -----------------------------------------------------------------------------------

def operations(m):
    length = m['L']
    yield from (('write', some) for some in ((0,), (1,), (0, 1), (2,), (2, 3), (1, 2), (0, 1, 2))
                if max(some) < length)
    yield from (('resize', new, writes) for new in (1, 2, 3, 4) if new != length for writes in (False, True))
    yield from (('deploy', p) for p in pages_of(length))
    if m['K'] is None:
        yield ('seal',)


def media_operations(m, medium):
    yield from operations(m)
    if medium == 'cache':
        yield from ((('point', False)), (('point', True)), ('checkpoint',))
    else:
        yield from (('redo', some) for some in ((0,), (0, 1), (1, 2)) if max(some) < m['L'])
        if m['K'] and m['K'][1] and all(i < m['L'] for i, _ in m['K'][1]) and m['K'][0] <= m['L']:
            yield ('roll_back',)
    yield ('close',)
    yield ('without', False)
    yield ('without', True)


def narrow_operations(m, medium):
    """Those on the first page alone: long histories of one page."""
    for op in media_operations(m, medium):
        if op[0] in ('seal', 'roll_back', 'point', 'checkpoint', 'close') or op[0] == 'write' and max(op[1]) < 2:
            yield op


def perform(s, op):
    STATS['operations'] += 1
    s.check_places()
    s.begin()
    name, args = op[0], op[1:]
    if name == 'redo':
        s.write(args[0], pinned=args[0])
    elif name == 'without':
        # A session without sums writes, zeroes or not. The next one is with sums.
        s.close()
        s.end_sums()
        s.sums = {}
        if args[0]:
            s.write(range(min(2, s.cur('L'))), value=0)
        else:
            s.write((0,))
        s.close()
        s.has_sums = True
        s.begin_sums()
    else:
        getattr(s, name)(*args)
        if name == 'close':
            s.sums, s.noted = {}, set()


# Longer ones that hold what random histories seldom do.
HISTORIES = {
    'dax': [[('write', (0, 1)), ('seal',), ('write', (0,)), ('close',)],
            [('seal',), ('write', (1,)), ('roll_back',)], [('seal',), ('write', (1, 2)), ('roll_back',)],
            [('seal',), ('write', (0,)), ('close',), ('roll_back',)], [('write', (0,)), ('redo', (0,))],
            [('resize', 1, False), ('resize', 3, False)]],
    'cache': [[('write', (0,)), ('point', True), ('write', (0,)), ('write', (1,))],
              [('write', (0,)), ('seal',), ('close',)], [('write', (0,)), ('close',)]],
}


class Search:
    def __init__(s, medium, depth, enough_crashes):
        s.medium, s.depth, s.enough = medium, depth, enough_crashes
        s.rng, s.seen, s.did = random.Random(5), set(), []

    def step(s, sim, op):
        """Performs one operation. Returns the session after it, and images of crashes in it."""
        t = sim.copy()
        s.did.append(op)
        try:
            perform(t, op)
        except Damaged as damaged:
            raise Violation(f'page {damaged} is taken for damaged') from None
        t.check()
        crashes = list(t.crashes.values())
        for m, passing in crashes:
            check_spoiled(m, passing)
        if op[0] == 'close':
            check_spoiled(recover(t.now()), t.passing)
        t.crashes = {}
        return t, crashes

    def reopen(s, m, passing):
        t = Sim(s.medium, m, passing)
        if m['I'] is not None:
            try:
                t.finish_rollback()
            except Damaged as damaged:
                raise Violation(f'a rollback is not finished: page {damaged} is taken for damaged') from None
        t.has_sums = True
        t.begin_sums()
        t.crashes = {}
        return t

    def spoil(s, sim, m):
        more = lambda t: [('close',)]
        check_operation_on_spoiled(sim, m, s.medium, more)
        if m['K'] and m['K'][1] and s.medium == 'dax' and m['K'][0] <= m['L']:
            for p, k, v in spoilings(m):
                if m['F'] == 1 and k[0] in 'HR' and content(m | {k: v}, p) != content(m, p) and m['I'] is None:
                    s.spoil_and_roll_back(sim, m | {k: v}, k)

    def spoil_and_roll_back(s, sim, m, k):
        t = Sim(s.medium, m, sim.passing, spoiled=True)
        try:
            t.roll_back()
        except Damaged:
            if t.cur('I') is not None:
                t = Sim(s.medium, recover(t.now()), t.passing, spoiled=True)
                t.finish_rollback()
        end = t.now()
        for q in pages_of(end['L']):
            if any(x & BAD for x in content(end, q)) and passes(end, q):
                raise Violation(f'{k} spoiled, then a rollback: page {q} passes with {content(end, q)}')

    def explore(s, sim, depth):
        key = (depth, tuple((k, tuple(v)) for k, v in sim.c.items()), repr(sim.sums), tuple(sorted(sim.noted)))
        if key in s.seen:
            return
        s.seen.add(key)
        for op in list(media_operations(sim.now(), s.medium)):
            s.one(sim, op, depth)

    def one(s, sim, op, depth):
        mark = len(s.did)
        t, crashes = s.step(sim, op)
        if depth > 1:
            s.explore(t, depth - 1)
            s.rng.shuffle(crashes)
            for n, (m, passing) in enumerate(crashes[:s.enough]):
                s.did.append('crash')
                child = s.reopen(m, passing)
                if n < 2:
                    s.spoil(t, m)
                s.explore(child, depth - 1)
                s.did.pop()
            if op[0] in ('close', 'write', 'seal'):
                s.spoil(t, recover(t.now()))
        del s.did[mark:]

    def walk(s, length, choices):
        """A long random history, with crashes and openings in it."""
        s.did = []
        sim = s.reopen_first()
        for _ in range(length):
            sim, crashes = s.step(sim, s.rng.choice(list(choices(sim.now(), s.medium))))
            if s.rng.random() < 0.4 and crashes:
                m, passing = s.rng.choice(crashes)
                if s.rng.random() < 0.1:
                    s.spoil(sim, m)
                s.did.append('crash')
                sim = s.reopen(m, passing)

    def reopen_first(s):
        m = first_image()
        return Sim(s.medium, m, {p: {content(m, p)} for p in PAGES})

    def told(s, history):
        """A history, an opening after each crash in it, and damage at its end."""
        s.did = []
        sim = s.reopen_first()
        for op in history:
            sim, crashes = s.step(sim, op)
            for m, passing in crashes[:100]:
                s.reopen(m, passing)
        s.spoil(sim, recover(sim.now()))

    def run(s, walks):
        try:
            for history in HISTORIES[s.medium]:
                s.told(history)
            s.did = []
            s.explore(s.reopen_first(), s.depth)
            for _ in range(walks):
                s.walk(6, media_operations)
                s.walk(6, narrow_operations)
        except Violation as violation:
            return s.did, violation
        return None


def run(depth, mutant, walks, crashes, is_quiet=False):
    MUT[0] = mutant
    STATS.update(dict.fromkeys(STATS, 0))
    bad = 0
    for medium in ('dax', 'cache'):
        found = Search(medium, depth, crashes).run(walks)
        if found:
            bad += 1
            did = ', '.join(' '.join(str(x) for x in op) if isinstance(op, tuple) else op for op in found[0])
            print(f'  {medium}: {did}: {found[1]}')
            if is_quiet:
                break
    print(f'{mutant}: depth {depth}, ' + ', '.join(f'{n} {k}' for k, n in STATS.items()) + f', {bad} violations',
          flush=True)
    return bad


def main():
    args = sys.argv[1:]
    if args[:1] in (['--all'], ['--quick']):
        is_quick = args[0] == '--quick'
        depth = int(args[1]) if len(args) > 1 else 1 if is_quick else 2
        walks, crashes = (20, 2) if is_quick else (300, 4)
        wrong = sum(run(depth, name, walks, crashes) for name in ('none', *HARMLESS))
        for name in MUTANTS:
            if not (run(1, name, 0, crashes, True) or run(2, name, 300, crashes, True)):
                wrong += 1
                print(f'  NOT FOUND: {name}: {MUTANTS[name]}')
        sys.exit(wrong != 0)
    depth, mutant = int(args[0]) if args else 2, args[1] if len(args) > 1 else 'none'
    sys.exit((run(depth, mutant, 300, 4) != 0) != (mutant != 'none' and mutant not in HARMLESS))


if __name__ == '__main__':
    main()
