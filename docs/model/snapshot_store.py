#!/usr/bin/env python3
"""Brute-force check of the snapshot store as a file: its table, its keep records, its space, and
its opening.

The layout is that of docs/decisions/snapshot-store.md. The table has two copies of two lines each,
written by turns. Records lie in segments of a header and six lines. A record keeps slices of a page
as they were at the seal of its epoch, and their bytes follow it. There are no other records. An
index in DRAM says where everything is, and an opening rebuilds it from the records.

The pair is a premise: page 0 has two slices, page 1 has one. Each slice has two slots, each page
has a word. A write is a flip of two drains, or goes over the valid slot. Words, rings and other
ways to commit are the business of the other models. A user may write bytes that look like a record
of the store: the lines of the store have no tags.

A cell is a line or a word. It holds each value since the last drain. A power loss leaves any of
them, each cell for itself. A process crash leaves the newest, and a later power loss may still take
it back. After each crash the file is opened, with crashes at each step of the opening, and lives
on. Then the present is old or new, the live snapshots are those before or after, and each of them
reads as it was sealed. No record is of an epoch that was never sealed. A failed reservation has
changed nothing. Compaction leaves nothing that no live snapshot reads.

Usage: snapshot_store.py [DEPTH] [MUTANT]      or: snapshot_store.py --all [DEPTH]
"""
import itertools
import random
import sys

from snapshot_store_machine import RULES, Damage, NoSpace, Sim

MUTANTS = {
    'table_in_place': 'a table written over the only whole copy',
    'table_no_checksum': 'a copy of the table that counts by its first line',
    'table_not_renewed': 'an opening that writes the other copy before the found one is durable',
    'records_not_renewed': 'an opening that believes records that are in the cache only',
    'number_by_live': 'a number that follows from the live snapshots: it is given twice',
    'highest_is_newest': 'a drop that forgets the highest number',
    'seal_undrained': 'a seal that returns before its table is durable',
    'drop_undrained': 'a drop that gives space away before its table is durable',
    'keep_no_drain': 'a store over the valid slot beside the record that keeps it',
    'keep_late': 'a keep record with the drain of the word, not with that of the data',
    'keep_once': 'a slice that was kept for an older snapshot is not kept again',
    'bytes_unchecked': 'a record that counts without the checksum of its bytes',
    'seed_unchecked': 'records that count whatever their seed',
    'seed_of_opening': 'segments of one opening have one seed',
    'seed_not_durable': 'appends before the number of the opening is durable',
    'old_segment': 'an opening that appends to a segment of the session before',
    'torn_is_skipped': 'records behind one that is not whole count',
    'needed_by_epoch': 'a record goes with its own snapshot',
    'needed_by_page': 'the next older record of the page counts, not that of the slice',
    'needed_not_own': 'a record serves only snapshots before its own',
    'drop_frees_nothing': 'a segment is free only when it was punched',
    'compact_undrained': 'copies that are not durable when the segments are given away',
    'compact_by_epoch': 'compaction that discards all slices of a dropped epoch',
    'compact_frees_first': 'compaction that gives a segment away before it copies',
    'compact_all': 'compaction that copies what no snapshot reads',
    'later_by_old_set': 'a collection in steps that judges records of later seals by its own set',
    'punch_undrained': 'segments punched before the drop is durable',
    'reserve_late': 'space that is asked for at each append',
    'drop_needs_room': 'a drop that appends a record',
    'opening_needs_room': 'an opening that begins its segment at once',
    'intention_cleared_early': 'a rollback that clears its intention before it is done',
    'intention_late': 'a rollback whose intention is not durable before its first store',
    'undo_not_with_intention': 'an undo snapshot sealed in a table of its own, after the intention',
    'roll_not_gone_on': 'an opening that leaves a rollback as it is',
}
HARMLESS = {
    'dead_records_count': 'a record is needed while an older snapshot is live: gives back less',
    'other_copy': 'an opening that takes the last copy of a slice, not the first',
}


OPS = {
    'a': lambda s: s.w(0, 0),
    'b': lambda s: s.w(0, 0, 1),
    'c': lambda s: s.w(1, 0),
    'i': lambda s: s.direct(0, 0),
    'k': lambda s: s.forge(),
    't': lambda s: s.fail(),
    's': lambda s: s.seal(),
    'd': lambda s: s.drop(0),
    'm': lambda s: s.drop(1),
    'g': lambda s: s.compact(),
    'h': lambda s: s.compact(True),
    'p': lambda s: s.punch(),
    'n': lambda s: s.note(),
    'e': lambda s: s.collect(),
    'r': lambda s: s.roll(),
    'o': lambda s: s.open(),
    'f': lambda s: s.fill_disk(),
}
NAMES = dict(a='write 0', b='write 0,1', c='write Q', i='store over 0', k='write a false record',
             t='keep both and fail', s='seal', d='drop oldest', m='drop second', g='compact',
             h='compact all', p='punch', n='begin a collection', e='end it', r='roll back', o='reopen', f='disk full or not')


class Check:
    def __init__(s, enough):
        s.images = s.deaths = s.steps = s.bad = s.full = 0
        s.enough, s.seen, s.done, s.also = enough, set(), set(), ()

    def tell(s, what, ops, got, want):
        s.bad += 1
        if s.bad == 1:
            print(f'  {what} after {", ".join(NAMES.get(o, o) for o in ops)}: {got}, not {want}',
                  flush=True)

    def look(s, sim, ops, what):
        """The state of an open file, against what must be found."""
        if sim.present() not in sim.ok_present:
            s.tell(f'{what}: present', ops, sim.present(), sim.ok_present)
        elif sim.live not in sim.ok_live:
            s.tell(f'{what}: live', ops, sim.live, sim.ok_live)
        elif sim.undo and sim.present() != sim.undo[0] and sim.undo[1] not in sim.live:
            s.tell(f'{what}: undo', ops, sim.live, sim.undo[1])
        else:
            for k in sim.live:
                if sim.read(k) != sim.snaps[k]:
                    return s.tell(f'{what}: snapshot {k}', ops, sim.read(k), sim.snaps[k])
            return True
        return False

    def act(s, sim, name, ops, each=lambda: None):
        before = {k: v[-1] for k, v in sim.c.items()}
        try:
            for _ in OPS[name](sim):
                s.steps += 1
                each()
        except NoSpace:
            s.full += 1
            if name == 'o' and sim.intent and RULES.mutant != 'opening_needs_room':
                # a rollback goes on at an opening that finds space
                return False
            if name in 'dmso' or {k: v[-1] for k, v in sim.c.items()} != before:
                s.tell('NoSpace', ops, name,
                       'nothing happened, and drops, seals and openings go on')
                return False
        except Damage as e:
            s.tell('refused', ops, e, 'opened')
            return False
        if name in 'dmgh' and sim.is_space_lost(name in 'gh'):
            s.tell('space', ops, 'what no snapshot reads is there', 'given back')
            return False
        return s.look(sim, ops, 'here')

    def key(s, sim, *more):
        return (RULES.lines, tuple(sorted((k, tuple(v)) for k, v in sim.c.items())),
                sim.alloc, sim.full, tuple(sorted(sim.snaps.items())), frozenset(sim.ok_present),
                frozenset(sim.ok_live), sim.noted, more)

    def power(s, sim, ops, again=2):
        key = s.key(sim, again, s.also)
        if key in s.seen or s.bad >= s.enough:
            return
        s.seen.add(key)
        names = [k for k, v in sim.c.items() if len(set(v)) > 1]
        for combo in itertools.product(*(dict.fromkeys(sim.c[k]) for k in names)):
            t = sim.copy()
            t.c = {k: v[-1:] for k, v in sim.c.items()}
            for k, v in zip(names, combo):
                t.c[k] = [v]
            s.images += 1
            s.opened(t, ops + ['power lost'], again)
            if s.bad >= s.enough:
                return

    def opened(s, t, ops, again):
        key = s.key(t, 'opened', again, s.also)
        if key in s.seen:
            return t if again == 2 else None
        s.seen.add(key)

        def each():
            if again == 2 and s.bad < s.enough:
                s.power(t, ops + ['in the opening'], 1)
                died = t.copy()
                s.deaths += 1
                s.opened(died, ops + ['died in the opening'], 1)
        if s.act(t, 'o', ops, each):
            t.settled()
            if again:
                s.lives(t, ops)

    def lives(s, sim, ops):
        """A session after a crash, with a loss of power at its end, and one more opening."""
        key = s.key(sim, 'lives', s.also, sim.at, frozenset(sim.index))
        if key in s.seen:
            return
        s.seen.add(key)
        for text in ('acabo', 'bsado', *s.also):
            t, done = sim.copy(), list(ops)
            for name in text:
                done.append(name)
                if not s.act(t, name, done):
                    return

    def run(s, sim, depth, ops=()):
        """All sequences of so many more operations, each also cut short by a crash."""
        key = s.key(sim, 'run', sim.at, sim.next, sim.use, tuple(sorted(sim.index.items())))
        if depth <= 0 or s.bad >= s.enough or (key, depth) in s.done:
            return
        s.done.add((key, depth))
        for name in OPS:
            s.one(sim, name, list(ops), depth)

    def one(s, sim, name, ops, depth):
        whole, here = sim.copy(), ops + [name]

        def each():
            if s.bad < s.enough:
                s.power(whole, here)
                died = whole.copy()
                s.deaths += 1
                s.opened(died, here + ['died'], 2)
        if s.act(whole, name, here, each):
            s.run(whole, depth - 1, here)
            return whole


    def crash(s, rng, sim):
        """One image of those that a crash may leave, opened."""
        t = sim.copy()
        if rng.random() < .6:
            t.c = {k: [rng.choice(v)] for k, v in sim.c.items()}
            s.images += 1
        else:
            s.deaths += 1
        return t

    def random(s, seed, length):
        """A long random sequence with random crashes, also in openings."""
        rng, sim, ops = random.Random(seed), Sim(), [f'seed {seed}']
        names = rng.choice(('', 'bsasa', 'ksc')) + ''.join(rng.choice('aabbciisskdmmgghpproftnne')
                                                           for _ in range(length))
        for name in names:
            while name:
                ops.append(name)
                often, died = rng.choice((0, 0, .1, .3)), []

                def each():
                    if not died and rng.random() < often:
                        died.append(s.crash(rng, sim))
                if not s.act(sim, name, ops, each):
                    return
                if died:
                    ops.append('crash')
                    sim, name = died[0], 'o'
                else:
                    if name == 'o':
                        sim.settled()
                    name = ''


RANDOM = 600                                      # long random sequences
SEEDS = {}                                        # the sequence that finds a mutant
# Beginnings that all sequences are appended to.
PRELUDES = ['', 'sa', 'sasa', 'sbsasb']
# Longer sequences, with a crash at each step. The operations behind `|` follow each crash.
SCRIPTS = [
    'bsasa|sbodgabco', 'bsasa|gcbbgbsabo', 'sasasamabago', 'sbsbsbmgaobo', 'kscbdosbo', 'ksbcosbdo',
    'sabcgdpacs', 'sasbrabrmgo', 'sasafbdcfbo', 'sacdsacdsacdsacdo', 'sbsbmgbsdbgsdbpo',
    'sabsadpaosab', 'sasbscdmgo|sbo', 'siiscidgo', 'fsabcsabcdabc', 'scsbrdfacbo', 'sbsagsdbao',
    'ksocbrgo', 'sbscbsacmdgbo', 'sckdscbdsbcsbo',
    'sasbcohhk|scbdmsbcsbo', '8scdkst|sbo', 'sasbndsaebo',
]


def sequences(check, depth):
    for text in PRELUDES + SCRIPTS:
        sim, done, crash = Sim(), [], text in SCRIPTS
        RULES.lines = 8 if text[:1] == '8' else 7
        text = text.lstrip('8')
        text, _, also = text.partition('|')
        check.also = (also,) if also else ()
        for name in text:
            if check.bad >= check.enough:
                return
            done.append(name)
            if crash:
                sim = check.one(sim, name, done[:-1], 0)
            elif not check.act(sim, name, done):
                sim = None
            if sim is None:
                break
        if not crash and sim:
            check.run(sim, depth, done)


def run(depth, mutant, enough, seeds=RANDOM):
    RULES.mutant, RULES.lines, check = mutant, 7, Check(enough)
    # Random sequences come first: they find most mutants soon.
    for seed in [*range(seeds), *([SEEDS[mutant]] if mutant in SEEDS else [])]:
        if check.bad < enough:
            check.random(seed, 40)
    if mutant not in HARMLESS or depth:
        sequences(check, depth)
    print(f'{mutant}: depth {depth}, {check.steps} steps, {check.images} losses of power, '
          f'{check.deaths} deaths, '
          f'{check.full} times full, {check.bad} violations', flush=True)
    return check.bad


def main():
    if sys.argv[1:2] == ['--all']:
        depth = int(sys.argv[2]) if len(sys.argv) > 2 else 0
        wrong = run(depth, 'none', 10) + sum(run(depth, m, 10) for m in HARMLESS)
        for m in MUTANTS:
            if not any(run(d, m, 1) for d in range(depth + 1)):
                wrong += 1
                print(f'  NOT FOUND: {m}: {MUTANTS[m]}')
        return wrong != 0
    depth = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    mutant = sys.argv[2] if len(sys.argv) > 2 else 'none'
    return (run(depth, mutant, 10) != 0) != (mutant in MUTANTS)


if __name__ == '__main__':
    sys.exit(main())
