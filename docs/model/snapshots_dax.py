#!/usr/bin/env python3
"""Brute-force check of snapshots by early keeps, where each operation is durable: Dax, and so Ram.

A snapshot costs nothing when it is sealed: it shares all slots with the present. The first
operation that changes a slice afterwards keeps it: a record says epoch, page and bytes, and is
durable before the change can be. So a slice of a snapshot is in the oldest record that is not older
than it, or else in its valid slot. A record never becomes false.

Geometry: slices 0 and 1 on page P, slice 2 on page Q, one region word with a bit for each page. A
slice has two slots. The length is 3 (both pages), 2 (page P) or 1: the end lies inside slice 0, and
slice 1 is past it. One or two lanes have a ring of two or four flip records each. One place holds
an undo record or a redo record, which a crash may tear. Redo takes the home slots of its pages as
pinned: slices in the reflection file stay, the others flip. Each thread appends to a segment of its
own, and a record that is not whole ends its segment.

Operations: logged flips, flips of a slice word and of the region word, undo records, redo also with
a new length, direct stores (Ram), flips and shrinks that fail, a flip beside another thread's,
deployment with and without holes and with a seal at each step, spatial close, shrink, growth, seal,
drop also beside a flip, rollback to the oldest and to the newest. Sessions of the log are left to
`logged_flips.py`, and segments that are used again to `snapshot_store.py`.

Crash images are taken before each drain and at the end of each operation: in between they only
become more. That includes each prefix of the stores in program order, so what Ram needs. A chunk is
chosen when recovery or a reader looks at it, with every value that it may have. The power may also
go in recovery. After recovery life goes on from the image, and so does a rollback. Values are
renamed, so each state is looked at once.

`HISTORIES` has a history for each mutant that shows the violation. `--all` follows these, and also
shows that the model without the mutant survives them. `--search` looks for each mutant anew.
Without a mutant each record is also compared with what was sealed, though its snapshot is dropped.

Files: this one has mutants, checks and parts; `snapshots_dax_operations.py` the operations;
`snapshots_dax_machine.py` the machine and the records; `snapshots_dax_recovery.py` the rules for
reading a snapshot, and recovery.

Usage: snapshots_dax.py [DEPTH] [MUTANT] [--only=PART]
       snapshots_dax.py --all [DEPTH] [--search]
"""
import random
import sys
import time

from snapshots_dax_operations import Sim
from snapshots_dax_recovery import Bad, Found, cfg

MUTANTS = {
    # keeps (K2)
    'no_keep': 'what a snapshot needs is not kept',
    'keep_free_slot': 'kept is the slot that is stored over, and not the valid one',
    'keep_by_word': 'kept is the slot by the slice word alone, without the region bit',
    'keep_again': 'a slice is kept although a record has it',
    'keep_by_own': 'only records of L(p) itself count as kept, and not newer ones (e == L)',
    'newest_only': 'L(p) is the snapshot sealed last, and 0 if that does not reach the page',
    'memo_page': 'a page remembers itself as kept once one of its slices is',
    'memo_over_seal': 'what a page remembers stays true over a seal',
    'memo_over_drop': 'what a page remembers of a later snapshot is all that an older one has',
    'memo_empty_over_drop': 'a page that remembers a later snapshot has nothing kept for an older one',
    'memo_over_roll': 'what a page remembers stays true over the undo snapshot of a rollback',
    'memo_at_start': 'a session begins with nothing kept, and does not ask the index',
    'keep_unchecked': 'a record counts by its header',
    'segment_shared': 'two threads append to one segment',
    'reader_one_epoch': 'a reader looks at the records of its own epoch only',
    'reader_newest': 'a reader takes the newest record, and not the oldest',
    # their order (K3)
    'keep_with_word': 'a flip: the keep is flushed with the word',
    'logged_keep': 'a logged flip that has to keep: the keep is in its only drain',
    'region_no_keep': 'a flip of region bits keeps nothing: slice words do not change',
    'region_keep_late': 'a flip of region bits: the keep is flushed with the region word',
    'undo_keep_late': 'an undo record: the keep comes with its end',
    'fail_noted': 'a failed operation does not drain, and its keep is noted',
    'direct_no_keep': 'a direct store keeps nothing',
    'direct_keep_late': 'a direct store: the keep comes after it',
    'direct_undrained': 'a direct store: its keep is not drained before it',
    'redo_keep_with_record': 'redo: the keep shares the drain of the record, which commits',
    'redo_keep_late': 'redo: the keep is flushed with the stores after the record',
    'redo_stays_unkept': 'redo keeps nothing of slices that stay',
    'redo_flips_unkept': 'redo keeps nothing of slices that flip',
    # the ways to commit, as they are
    'redo_no_drain': 'the redo record shares a drain with the invalidation',
    'redo_flips_no_drain': 'the redo record shares a drain with the slices that flip',
    'redo_length_ignored': 'recovery goes by the length word, and not by that of the redo record',
    'undo_unchecked': 'a torn undo record counts',
    'undo_end_undrained': 'the end of an undo record is not drained',
    # shrink (K4)
    'cut_no_keep': 'a shrink keeps nothing',
    'cut_keep_late': 'a shrink keeps after its commit point',
    'cut_keep_undrained': 'the keep of a shrink shares the drain of the length word',
    'cut_page_forgotten': 'a shrink keeps nothing of the page that the length cuts',
    'cut_slice_forgotten': 'a shrink keeps whole slices only, not the one that the length cuts',
    'redo_cut_no_keep': 'a redo record with a shorter length keeps nothing of what it cuts off',
    'redo_cut_with_record': 'a redo record with a shorter length shares the drain of that keep',
    'redo_cut_keep_late': 'a redo record with a shorter length: that keep comes with its end',
    'seal_in_shrink': 'a seal between the keep of a shrink and its commit point',
    # seals and drops (K1, K5, K6)
    'no_gate': 'a seal in the middle of an operation',
    'seal_undrained': 'a seal is not drained',
    'number_again': 'the number of a dropped snapshot is given again',
    'drop_l_early': 'operations go by a drop before its table is durable',
    'free_first': 'records are freed before the table says dropped',
    'free_own': 'the records of a dropped epoch are freed though an older snapshot reads them',
    'free_by_page': 'a record is freed by the next older one of its page, of whichever slice',
    # rollback (K8)
    'no_intention': 'a rollback without an intention',
    'intention_late': 'the table with the intention is not drained before the first store',
    'intention_early': 'the intention is cleared before the last page is durable',
    'intention_end_undrained': 'the cleared intention is not drained',
    'undo_after_intention': 'the undo snapshot is sealed after the intention',
    'roll_no_keep': 'a rollback keeps nothing for its undo snapshot',
}
HARMLESS = {
    'keep_whole_page': 'an operation keeps all of a page when it has to keep a slice of it',
    'l_global': 'L is the newest live snapshot, whether it reaches the page or not',
    'cut_keeps_zeroes': 'a shrink keeps slices that are zero, too',
    'write_in_shrink': 'a write past the new end, between the keep of a shrink and its length',
    'fail_unnoted': 'a failed operation does not drain its keep, and does not note it',
    'free_nothing': 'a drop frees no record',
}

# A history for each mutant, found by `--search` and made shorter.
HISTORIES = {
    'no_keep': 'seal, flip 0',
    'keep_free_slot': 'flip 0, seal, flip 0',
    'keep_by_word': 'region 0 1, seal, flip 0',
    'keep_again': 'seal, flip 0, flip 0',
    'keep_by_own': 'seal, seal, flip 0, drop newest, flip 0',
    'newest_only': 'seal, cut 2, seal, grow 3, flip 2',
    'memo_page': 'seal, flip 0, flip 1',
    'memo_over_seal': 'seal, flip 0, seal, flip 0',
    'memo_over_drop': 'seal, flip 0, seal, flip 1, drop newest, flip 0',
    'memo_empty_over_drop': 'seal, seal, flip 0, drop newest, flip 0',
    'memo_over_roll': 'seal, flip 0, roll oldest',
    'memo_at_start': 'seal, flip 0, crash, flip 0',
    'keep_unchecked': 'seal, flip 0',
    'segment_shared': 'seal, pair 2 0',
    'reader_one_epoch': 'seal, seal, flip 0',
    'reader_newest': 'seal, flip 0, seal, flip 0',
    'keep_with_word': 'seal, flip 0',
    'logged_keep': 'seal, logged_flip 0',
    'region_no_keep': 'seal, region 0 1',
    'region_keep_late': 'seal, region 0 1',
    'undo_keep_late': 'seal, multi 0 2',
    'fail_noted': 'seal, fail 0, logged_flip 0',
    'direct_no_keep': 'seal, direct 0',
    'direct_keep_late': 'seal, direct 0',
    'direct_undrained': 'seal, direct 0',
    'redo_keep_with_record': 'seal, redo 0',
    'redo_keep_late': 'seal, redo 0',
    'redo_stays_unkept': 'flip 0, seal, redo 0',
    'redo_flips_unkept': 'seal, redo 0',
    'redo_no_drain': 'logged_flip 1, logged_flip 0 1, redo 0',
    'redo_flips_no_drain': 'flip 0, flip 0, redo 0',
    'redo_length_ignored': 'resize 0 > 1',
    'undo_unchecked': 'multi 0 2, multi 0 2',
    'undo_end_undrained': 'multi 0 2',
    'cut_no_keep': 'flip 2, seal, cut 2',
    'cut_keep_late': 'flip 2, seal, cut 2',
    'cut_keep_undrained': 'flip 2, seal, cut 2',
    'cut_page_forgotten': 'flip 0, seal, cut 1',
    'cut_slice_forgotten': 'flip 0, seal, cut 1',
    'redo_cut_no_keep': 'flip 1, seal, resize 0 > 1',
    'redo_cut_with_record': 'flip 1, seal, resize 0 > 1',
    'redo_cut_keep_late': 'flip 1, seal, resize 0 > 1',
    'seal_in_shrink': 'flip 2, cut 2',
    'no_gate': 'logged_flip 0',
    'seal_undrained': 'seal',
    'number_again': 'seal, seal, flip 0, drop newest, seal, flip 0',
    'drop_l_early': 'seal, seal, drop_beside newest',
    'free_first': 'seal, flip 0, drop oldest',
    'free_own': 'seal, seal, flip 0, drop newest',
    'free_by_page': 'seal, flip 1, seal, flip 0, drop newest',
    'no_intention': 'seal, multi 0 2, roll oldest',
    'intention_late': 'flip 2, seal, cut 2, roll oldest',
    'intention_early': 'seal, multi 0 2, roll oldest',
    'intention_end_undrained': 'seal, flip 0, roll oldest',
    'undo_after_intention': 'seal, flip 0, roll oldest',
    'roll_no_keep': 'seal, flip 0, roll oldest',
}


class Check:
    def __init__(self, enough):
        self.images = self.bad = self.states = self.runs = 0
        self.enough = enough
        self.seen = set()
        self.known = {}
        self.ops = ()
        self.next = []
        self.found = None

    def late(self):
        return self.bad >= self.enough

    def report(self, e):
        self.bad += 1
        if self.bad == 1:
            self.found = self.ops
            print(f'  {told(self.ops)}: {e}')

    def __call__(self, sim):
        if self.late():
            return
        key = sim.key()
        if key in self.seen:
            return
        self.seen.add(key)
        path = []
        while True:
            cache, pos = {}, [0]

            def get(k):
                if k in cache:
                    return cache[k]
                values = tuple(dict.fromkeys(sim.c[k]))
                if len(values) == 1:
                    v = values[0]
                else:
                    if pos[0] == len(path):
                        path.append([0, len(values)])
                    v = values[path[pos[0]][0]]
                    pos[0] += 1
                cache[k] = v
                return v

            self.images += 1
            try:
                self.image(sim, get, cache)
            except Bad as e:
                self.report(e)
                return
            while path and path[-1][0] + 1 == path[-1][1]:
                path.pop()
            if not path:
                return
            path[-1][0] += 1

    def image(self, sim, get, cache):
        f = Found(get, sim)
        f.look(sim, 'image')
        for part in f.interrupted():
            again = Found(lambda k: part[k] if k in part else get(k), sim)
            again.look(sim, f'the power gone in recovery, after {part}')
        t = f.recovered(sim, cache, Sim())
        if f.intention is not None:
            # An interrupted rollback goes on, before a caller gets the file.
            k = f.intention
            t.then = sim.snaps[k]
            t.allowed = {t.then}
            outer, self.next = self.next, []
            try:
                t.roll_on(k)
                t.now = t.then
                self(t)
            finally:
                self.next = outer
            if t.now not in sim.allowed or self.late():
                raise Bad(f'rolled back to {t.now}, may be {sim.allowed}')
        t.allowed = {t.now}
        self.next.append(t)

    def step(self, sim, op):
        """The state after an operation, and those after a crash in it."""
        t = sim.copy()
        t.check = self
        self.next = []
        self.runs += 1
        try:
            t.run(op)
        except Bad as e:
            self.report(e)
        except RecursionError:
            self.report('a rollback that goes on at openings does not end')
        after, self.next = self.next, []
        return t, after

    def explore(self, sim, ops, depth, life):
        """All sequences of `depth` more operations; after a crash of `life` more."""
        if self.late():
            return
        key = sim.key()
        if self.known.get(key, -1) >= depth:
            return
        self.known[key] = depth
        self.states += 1
        self.ops = ops
        if depth == 0:
            return
        for op in cfg.kinds:
            if not sim.can(op):
                continue
            self.ops = ops + (op,)
            t, after = self.step(sim, op)
            if self.late():
                return
            self.explore(t, ops + (op,), depth - 1, life)
            if life:
                done = set()
                more = min(life, depth - 1) if depth > 1 else life - 1
                for r in after:
                    k = r.key()
                    if k in done:
                        continue
                    done.add(k)
                    self.ops = ops + (op, 'crash')
                    self.explore(r, ops + (op, 'crash'), more, life - 1)
                    if self.late():
                        return

    def follow(self, sim, ops, done=()):
        """One history. 'crash': it goes on from every image of the operation before."""
        if self.late():
            return
        self.ops = done
        if not ops or not sim.can(ops[0]):
            return
        op, rest = ops[0], ops[1:]
        self.ops = done + (op,)
        t, after = self.step(sim, op)
        if self.late():
            return
        if rest[:1] != ('crash',):
            return self.follow(t, rest, done + (op,))
        seen = set()
        for r in after:
            if r.key() not in seen:
                seen.add(r.key())
                self.ops = done + (op, 'crash')
                self.follow(r, rest[1:], done + (op, 'crash'))

    def random(self, rng, length, start):
        sim = start.copy()
        ops = ()
        for _ in range(length):
            op = rng.choice([k for k in cfg.kinds if sim.can(k)])
            ops += (op,)
            self.ops = ops
            sim, after = self.step(sim, op)
            if self.late():
                return
            if after and rng.random() < .3:
                sim = rng.choice(after)
                ops += ('crash',)


# ---- histories in words --------------------------------------------------------------------------


def told(ops):
    """A history: `seal, logged_flip 0 1, resize 0 > 1, crash`."""
    def one(op):
        if op == 'crash':
            return op
        name, x = op[0], op[1]
        text = name if x is None else f'{name} {" ".join(map(str, x if type(x) is tuple else [x]))}'
        if name in ('resize', 'deploy_seal'):
            text += f' > {op[2]}'
        if name == 'logged_flip' and op[2]:
            text += f' / {op[2]}'
        return text
    return ', '.join(map(one, ops))


def read_history(text):
    ops = []
    for part in text.split(', ') if text else ():
        words = part.split()
        name, x = words[0], words[1:]
        if name == 'crash':
            ops.append('crash')
        elif name in ('seal', 'close'):
            ops.append((name, None))
        elif name in ('cut', 'fail_cut', 'grow'):
            ops.append((name, int(x[0])))
        elif name in ('drop', 'drop_beside', 'roll', 'deploy', 'punch'):
            ops.append((name, x[0]))
        elif name == 'deploy_seal':
            ops.append((name, x[0], int(x[2])))
        else:
            mark = next((n for n, w in enumerate(x) if w in '>/'), len(x))
            last = int(x[mark + 1]) if mark < len(x) else 0
            slices = tuple(map(int, x[:mark]))
            has_third = name in ('logged_flip', 'resize')
            ops.append((name, slices, last) if has_third else (name, slices))
    return tuple(ops)


def kinds(text):
    return list(read_history(text))


DROPS = 'drop oldest, drop middle, drop newest'
MAIN = kinds('logged_flip 0, logged_flip 0 1, logged_flip 2, flip 0, multi 0 2, redo 0, fail 0, '
             'region 0 1 2, punch P, cut 1, cut 2, grow 3, seal, roll oldest, ' + DROPS)
ALL = MAIN + kinds('logged_flip 1, flip 0 1, flip 2, region 0 1, redo 0 1, redo 0 2, resize 0 > 1, '
                   'resize 0 > 2, resize 0 2 > 3, deploy P, punch Q, multi 0 1 2, close, grow 2, '
                   'fail 0 1, fail_cut 1, fail_cut 2, pair 2 0, pair 0 2, roll newest, '
                   'drop_beside oldest, drop_beside newest, deploy_seal P > 1, deploy_seal P > 2, '
                   'deploy_seal P > 3, deploy_seal P > 4')
RAM = kinds('flip 0, direct 0, direct 1, direct 2, multi 0 2, flip 0 1, region 0 1 2, deploy P, '
            'seal, drop oldest, drop newest, roll oldest')
SNAPS = kinds('logged_flip 0, logged_flip 0 1, flip 0, region 0 1, seal, deploy P, fail 0, '
              'drop_beside newest, ' + DROPS)
REDO = kinds('logged_flip 0, logged_flip 1, logged_flip 0 1, redo 0, redo 0 1, redo 0 2, '
             'resize 0 > 1, resize 0 > 2, resize 0 2 > 3, region 0 1, seal, drop oldest, '
             'roll oldest')
REGION = kinds('region 0 1 2, region 0 1, logged_flip 0, logged_flip 2, flip 1, multi 0 2, '
               'redo 0 1, deploy P, deploy Q, seal, drop oldest, roll oldest')
CUT = kinds('cut 1, cut 2, grow 2, grow 3, resize 0 > 1, resize 0 2 > 3, logged_flip 0, '
            'fail_cut 1, logged_flip 0 1, flip 1, flip 2, region 0 1, deploy P, seal, '
            'drop oldest, drop newest')
ROLL = kinds('logged_flip 0, flip 1, multi 0 2, cut 1, cut 2, grow 2, grow 3, resize 0 2 > 3, '
             'seal, roll oldest, roll newest, drop oldest, drop newest, deploy P')
UNDO = kinds('multi 0 2, multi 0 1 2, logged_flip 0, redo 0 2, region 0 1 2, flip 2, deploy Q, '
             'pair 2 0, seal, drop oldest')
LANES = ALL + kinds('logged_flip 0 / 1, logged_flip 1 / 1')


def configure(mutant, kinds, lanes=1, ring=2, seals=3):
    cfg.mutant, cfg.kinds, cfg.lanes, cfg.ring, cfg.seals = mutant, kinds, lanes, ring, seals
    cfg.facts = mutant not in MUTANTS


def start(text):
    sim = Sim()
    sim.check = lambda s: None
    for op in read_history(text):
        sim.run(op)
    return sim


def parts(depth):
    """Name, kinds, depth, lanes, ring, life, random sequences, operations that come before."""
    return [
        ('main', MAIN, depth, 1, 2, 1, 0, 'logged_flip 2, seal'),
        ('all', ALL, depth - 1, 1, 2, 1, 0, 'seal, logged_flip 0, seal'),
        ('snaps', SNAPS, depth + 1, 1, 2, 1, 0, 'seal'),
        ('ram', RAM, depth, 1, 2, 1, 0, 'seal'),
        ('redo', REDO, depth, 1, 2, 1, 0, 'redo 0, seal'),
        ('plain', REDO, depth, 1, 2, 1, 0, ''),
        ('region', REGION, depth, 1, 2, 1, 0, 'region 0 1, seal'),
        ('cut', CUT, depth, 1, 2, 1, 0, 'logged_flip 0, logged_flip 2, seal'),
        ('dropped', SNAPS, depth, 1, 2, 1, 0, 'seal, seal, flip 0, drop newest, seal'),
        ('roll', ROLL, depth, 1, 2, 1, 0, 'logged_flip 2, seal, multi 0 2'),
        ('roll2', ROLL, depth, 1, 2, 1, 0, 'cut 2, seal, grow 3, multi 0 2'),
        ('roll1', ROLL, depth, 1, 2, 1, 0, 'flip 0, cut 1, seal, grow 3, multi 0 1 2'),
        ('undo', UNDO, depth, 1, 2, 1, 0, 'multi 0 2, seal'),
        ('life', MAIN, depth - 1, 1, 2, 2, 0, 'seal, logged_flip 0 1'),
        ('kept', ALL, depth, 1, 2, 0, 0, 'logged_flip 0, seal, flip 0, flip 1, seal, flip 1'),
        ('random', LANES, 0, 2, 4, 0, 15 * depth ** 2, ''),
        ('random2', LANES, 0, 2, 2, 0, 15 * depth ** 2, 'seal'),
    ]


def run(depth, mutant, enough=1, only=None, show=True):
    began = time.time()
    total = bad = runs = 0
    where = ''
    for name, kinds_, d, lanes, ring, life, many, before in parts(depth):
        if only and name not in only:
            continue
        configure(mutant if mutant in HARMLESS else 'none', kinds_, lanes, ring, 3)
        sim = start(before)
        configure(mutant, kinds_, lanes, ring, 6 if many else 4 + (name == 'dropped'))
        check = Check(enough)
        t0 = time.time()
        if d:
            check.explore(sim, read_history(before), d, life)
        rng = random.Random(7)
        for _ in range(many):
            if check.late():
                break
            check.random(rng, 10, sim)
        total += check.images
        runs += check.runs
        bad += check.bad
        if mutant == 'none' and show:
            print(f'  {name}: depth {d}, {check.runs} operations from {check.states} states, '
                  f'{check.images} images, {check.bad} violations, {time.time() - t0:.0f} s',
                  flush=True)
        if bad:
            where = name
            break
    print(f'{mutant}: depth {depth}, {runs} operations, {total} images, {bad} violations'
          f'{" in " + where if bad else ""}, {time.time() - began:.0f} s', flush=True)
    return bad


def follow(mutant):
    """The history of a mutant, with it and without. True if it shows a violation with it alone."""
    text = HISTORIES[mutant]
    found = []
    for m in (mutant, 'none'):
        configure(m, [], 1, 2, 5)
        check = Check(1)
        sim = Sim()
        sim.check = check
        check.follow(sim, read_history(text))
        found.append(check.bad > 0)
        if m == mutant:
            print(f'{mutant}: {check.images} images, {check.bad} violations: {text}', flush=True)
    return found == [True, False]


def run_all(depth, search):
    wrong = run(depth, 'none', 3)
    for m in HARMLESS:
        wrong += run(max(depth - 1, 1), m)
    for m in MUTANTS:
        is_found = any(run(d, m) for d in range(2, depth + 1)) if search else follow(m)
        wrong += not is_found
        if not is_found:
            print(f'  NOT FOUND: {m}: {MUTANTS[m]}')
    print(f'{len(MUTANTS)} mutants, {len(HARMLESS)} harmless changes, {wrong} wrong')
    return wrong


if __name__ == '__main__':
    args = [a for a in sys.argv[1:] if not a.startswith('--')]
    depth = int(args[0]) if args else 2
    only = [a[7:] for a in sys.argv if a.startswith('--only=')]
    if '--all' in sys.argv:
        sys.exit(run_all(depth, '--search' in sys.argv) != 0)
    mutant = args[1] if len(args) > 1 else 'none'
    bad = run(depth, mutant, 3, only)
    sys.exit((bad != 0) != (mutant in MUTANTS))
