#!/usr/bin/env python3
"""Brute-force check of snapshots and page sums where each operation is durable: Dax, and so Ram.

A snapshot costs nothing when it is sealed: it shares all slots with the present. The first
operation that moves a page afterwards writes a base record: epoch, page, validity, sum. It says
which slots the snapshot has. A keep record holds the bytes of a slot that a live snapshot reads. It
is durable before an operation stores over that slot. A page may have bases of several epochs, so a
slice that has not been written since needs no copy, however many snapshots there are. A logged flip
may be the first to move a page: its flip record says so, and recovery makes the base that did not
arrive. A page has two places for its sum. A flip record and a redo record hold the new sums.

Geometry: slices 0 and 1 on page P, slice 2 on page Q, one region word with a bit for each page. A
slice has two slots. The length is 3 (both pages), 2 (page P) or 1: the end lies inside slice 0, and
slice 1 is past it. One or two lanes have a ring of two or four flip records each. One place holds
an undo record or a redo record, which a crash may tear. Redo takes the home slots of its pages as
pinned: slices in the reflection file stay, the others flip.

Operations: logged flips, flips of a slice word and of the region word, undo records, redo also with
a new length, direct stores (Ram), deployment with and without holes, spatial close, shrink, growth,
seal, drop, rollback. Each ends with a drain of all that it has flushed, so two threads never have
something flushed at one time. Sessions are left to `logged_flips.py`.

Crash images are taken before each drain and at the end of each operation: in between they only
become more. That includes each prefix of the stores in program order, so what Ram needs. A chunk is
chosen when recovery or a reader looks at it, with every value that it may have. The power may also
go in recovery. After recovery life goes on from the image. Values are renamed, so each state is
looked at once.

What is owed is kept when an operation is about to go over it. As a variant it is kept with the
first drain of the operation that makes it owed (`--eager`: all slices; in `--all` also some).
`--hurt` damages each image before recovery.

`HISTORIES` has a history for each mutant that shows the violation. `--all` follows these, and also
shows that the model without the mutant survives them. `--search` looks for each mutant anew.

Files: this one has mutants, checks and parts; `snapshots_dax_lazy_operations.py` the operations;
`snapshots_dax_lazy_machine.py` the machine and the records; `snapshots_dax_lazy_recovery.py` the rules for
reading a snapshot, and recovery.

Usage: snapshots_dax_lazy.py [DEPTH] [MUTANT] [--eager] [--hurt] [--only=PART]
       snapshots_dax_lazy.py --all [DEPTH] [--search]
"""
import itertools
import random
import sys
import time

from snapshots_dax_lazy_operations import Sim
from snapshots_dax_lazy_recovery import (OF, PAGE, PAGES, Bad, Found, S, cfg, chain, live_of, mut,
                                    source, within)

MUTANTS = {
    # bases
    'no_base': 'the first operation on a page after a seal writes no base record',
    'base_late': 'the base record is flushed with the word, and not before it',
    'flip_no_gen': 'a flip record does not say that it is the first on its page',
    'gen_ignored': 'recovery makes a base whenever there is none, of however old a flip record',
    'synth_not_written': 'the base that recovery makes is in DRAM only',
    'newest_only': 'a base only while the snapshot sealed last is live (as drafted)',
    'one_base': 'a reader looks into slots by the newest base only (as drafted)',
    # keeps
    'no_keep': 'what a snapshot needs is not kept',
    'keep_undrained': 'the keep record shares a drain with the store over what it keeps',
    'keep_unchecked': 'a keep record counts by its header',
    'keep_by_own': 'kept only if the very snapshot of the base is live, not if an older one is',
    'keep_by_name': 'only flips keep: redo and direct stores go over the valid slot (as drafted)',
    'mask_not_handed': 'after a flip the old slot is not owed',
    'roll_forgets': 'a new base forgets what is owed for older bases',
    'keeps_forgotten': 'recovery reads bases, and not which slices are kept',
    'reader_one_epoch': 'a reader looks at the records of its own epoch only',
    'kept_early': 'kept is the slot that is valid now, not the one of the base',
    # redo
    'redo_base_with_record': 'the base shares the drain of the redo record, which commits',
    'redo_keep_with_record': 'the keep of slices that stay shares the drain of the redo record',
    'redo_keep_late': 'the keep is flushed with the stores over what it keeps',
    'redo_hands_stays': 'after redo nothing is owed of slices that stay, as if they had flipped',
    'redo_no_drain': 'the redo record shares a drain with the invalidation',
    'redo_flips_no_drain': 'the redo record shares a drain with the slices that flip',
    'redo_length_ignored': 'recovery goes by the length word, and not by that of the redo record',
    'redo_cut_no_keep': 'a redo record with a shorter length keeps nothing of what it cuts off',
    'redo_cut_keep_late': 'a redo record with a shorter length: the keep comes after its end',
    'redo_cut_sum': 'a redo record has the sum of the page that its length cuts as it was before',
    # region words, runs
    'base_slice_word': 'a base has the slice word, to be read with the present region bit',
    'synth_slice_word': 'recovery makes its base of the slice word alone',
    'region_no_base': 'a flip of region bits writes no base: slice words do not change',
    'region_masks': 'after a flip of a region bit the old slots are not owed',
    'run_mixed': 'a run speaks for a page that lies on both sides',
    'run_sides': 'a run speaks for pages on different sides',
    'run_over_base': 'a run speaks for a page that has a base already',
    'run_unchecked': 'a run counts by its first line, without its sums',
    # undo records
    'undo_unchecked': 'a torn undo record counts',
    'undo_end_undrained': 'the end of an undo record is not drained',
    'undo_base_last': 'the base comes with the end of the undo record',
    # deployment
    'deploy_over': 'deployment stores over home slots that are owed',
    'punch_owed': 'holes are punched where snapshots read',
    'no_rebase': 'bases are not said anew when a page comes home',
    'rebase_one': 'only the newest base is said anew',
    'rebase_kept': 'a base is said anew of a slice that a newer base has kept',
    'rebase_early': 'bases are said anew before the home slots have the bytes',
    'home_by_change': 'the reflection slot of a slice that a rollback moved counts as not owed',
    'close_no_keep': 'a spatial close does not keep what is owed in the reflection file',
    'swap_not_owed': 'the slot that a rollback makes valid again is not owed any more',
    # shrink
    'cut_no_keep': 'a shrink keeps nothing',
    'cut_keep_late': 'a shrink keeps after its commit point',
    'cut_page_forgotten': 'a shrink keeps nothing of the page that the length cuts',
    'cut_slice_forgotten': 'a shrink keeps whole slices only, not the one that the length cuts',
    'cut_other_forgotten': 'a shrink keeps valid slots only',
    'seal_in_shrink': 'a seal between the keep of a shrink and its commit point',
    # seals, drops, rollback
    'seal_undrained': 'a seal is not drained',
    'no_gate': 'a seal in the middle of an operation',
    'free_first': 'records are freed before the table says dropped',
    'free_own': 'the records of a dropped epoch are freed though an older snapshot is live',
    'number_again': 'the number of a dropped snapshot is given again',
    'no_intention': 'a rollback without an intention',
    'intention_late': 'the intention of a rollback is not drained before the first store',
    'intention_early': 'the intention is cleared before the last page is durable',
    # sums
    'sum_one_place': 'the new sum goes over the one that counts',
    'sum_not_in_redo': 'the sum goes to its place with the redo record, and not into it',
    'sum_late': 'the sum is flushed with the word, and not before it',
    'sum_not_in_flip': 'a flip record does not hold the sum, which goes to its place with it',
    'sum_not_settled': 'records are invalidated when words are durable, but not sums',
    'sum_not_flushed': 'a batch flushes words, and not the places of sums',
    'sum_not_adopted': 'recovery does not store the sum that a record vouches for',
    'sum_any_place': 'while a file is open, either place may match',
    'sum_of_slice': 'a slice of which only a part is new is left out of the sum',
    'cut_sum_late': 'the sum of the page that the length cuts comes after the length',
    'cut_unflushed': 'a shrink: the old sum of the page that it cuts is not durable before it',
    'redo_cut_unflushed': 'redo with a shorter length: that sum is not durable before the end',
    'snap_unsummed': 'what a snapshot reads from slots is not verified',
    'base_no_sum': 'the base has the sum after, not before',
}

# A history for each mutant, found by `--search` and made shorter.
HISTORIES = {
    'no_base': 'seal, logged_flip 0',
    'base_late': 'seal, flip 0',
    'flip_no_gen': 'seal, logged_flip 0',
    'gen_ignored': 'logged_flip 2, seal',
    'synth_not_written': 'seal, logged_flip 2, crash',
    'newest_only': 'seal, seal, drop newest, logged_flip 0',
    'one_base': 'seal, logged_flip 0, seal, redo 0',
    'no_keep': 'seal, logged_flip 0, logged_flip 0',
    'keep_undrained': 'seal, logged_flip 0, logged_flip 0',
    'keep_unchecked': 'seal, logged_flip 0, logged_flip 0',
    'keep_by_own': 'seal, seal, logged_flip 0, drop newest, logged_flip 0',
    'keep_by_name': 'logged_flip 0, seal, redo 0',
    'mask_not_handed': 'seal, logged_flip 0, logged_flip 0',
    'roll_forgets': 'seal, logged_flip 0, seal, logged_flip 0',
    'keeps_forgotten': 'seal, logged_flip 0, logged_flip 0',
    'reader_one_epoch': 'seal, seal, logged_flip 0',
    'kept_early': 'seal, logged_flip 0, logged_flip 0',
    'redo_base_with_record': 'seal, redo 0',
    'redo_keep_with_record': 'logged_flip 0, seal, redo 0',
    'redo_keep_late': 'logged_flip 0, seal, redo 0',
    'redo_hands_stays': 'logged_flip 0, seal, logged_flip 0, seal, roll, redo 0, logged_flip 0',
    'redo_no_drain': 'logged_flip 1, logged_flip 0 1, redo 0',
    'redo_flips_no_drain': 'logged_flip 0, crash, redo 0',
    'redo_length_ignored': 'resize 0 > 1',
    'redo_cut_no_keep': 'logged_flip 0 1, seal, resize 0 > 1',
    'redo_cut_keep_late': 'logged_flip 0 1, seal, resize 0 > 1',
    'redo_cut_sum': 'resize 0 > 1',
    'base_slice_word': 'seal, region 0 1',
    'synth_slice_word': 'region 0 1, seal, logged_flip 0',
    'region_no_base': 'seal, region 0 1 2',
    'region_masks': 'seal, region 0 1 2, logged_flip 0',
    'run_mixed': 'multi 0 2, seal, region 0 1 2',
    'run_sides': 'logged_flip 2, seal, region 0 1 2',
    'run_over_base': 'region 0 1, seal, region 0 1, region 0 1 2',
    'run_unchecked': 'seal, region 0 1 2',
    'undo_unchecked': 'multi 0 2, multi 0 2',
    'undo_end_undrained': 'multi 0 2',
    'undo_base_last': 'seal, multi 0 2',
    'deploy_over': 'seal, logged_flip 0, punch P',
    'punch_owed': 'logged_flip 1, seal, logged_flip 1, punch P',
    'no_rebase': 'logged_flip 0, seal, logged_flip 1, punch P',
    'rebase_one': 'logged_flip 0, seal, logged_flip 1, seal, logged_flip 1, punch P',
    'rebase_kept': 'logged_flip 0, seal, logged_flip 1, seal, redo 0, punch P',
    'rebase_early': 'logged_flip 0, seal, logged_flip 1, punch P',
    'home_by_change': 'logged_flip 0, seal, logged_flip 0, seal, roll, punch P',
    'close_no_keep': 'logged_flip 1, seal, logged_flip 1, close',
    'swap_not_owed': 'seal, logged_flip 0, roll, redo 0, logged_flip 0',
    'cut_no_keep': 'logged_flip 2, seal, cut 2',
    'cut_keep_late': 'logged_flip 2, seal, cut 2',
    'cut_page_forgotten': 'logged_flip 0, seal, cut 1',
    'cut_slice_forgotten': 'logged_flip 0, seal, cut 1',
    'cut_other_forgotten': 'logged_flip 2, seal, logged_flip 2, cut 2',
    'seal_in_shrink': 'logged_flip 2, cut 2',
    'seal_undrained': 'seal',
    'no_gate': 'logged_flip 0',
    'free_first': 'seal, logged_flip 0, crash, drop oldest',
    'free_own': 'seal, seal, logged_flip 0, drop newest',
    'number_again': 'seal, logged_flip 0, drop oldest, seal',
    'no_intention': 'seal, multi 0 2, roll',
    'intention_late': 'logged_flip 2, seal, cut 2, roll',
    'intention_early': 'seal, multi 0 2, roll',
    'sum_one_place': 'flip 0',
    'sum_not_in_redo': 'redo 0',
    'sum_late': 'flip 0',
    'sum_not_in_flip': 'logged_flip 0',
    'sum_not_settled': 'logged_flip 0 1, redo 0',
    'sum_not_flushed': 'logged_flip 2, logged_flip 0, logged_flip 0',
    'sum_not_adopted': 'seal, logged_flip 2, crash',
    'sum_any_place': 'logged_flip 0',
    'sum_of_slice': 'logged_flip 0 1',
    'cut_sum_late': 'logged_flip 0, cut 1',
    'cut_unflushed': 'redo 0, logged_flip 1, cut 1',
    'redo_cut_unflushed': 'redo 0, seal, logged_flip 1, resize 0 > 1',
    'snap_unsummed': 'seal',
    'base_no_sum': 'seal, logged_flip 0',
}
# These are seen by damage to an image only.
BY_DAMAGE = ('cut_unflushed', 'redo_cut_unflushed')


class Check:
    def __init__(self, enough, life=1):
        self.images = self.bad = self.states = self.runs = self.scribbles = self.unsure = 0
        self.hurts = self.reverts = 0
        self.enough = enough
        self.life = life
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
        places = f.look(sim, 'image')
        for part, more in f.interrupted(places):
            again = Found(lambda k: part[k] if k in part else get(k), sim, more)
            again.look(sim, f'the power gone in recovery, after {part}')
        if cfg.hurt:
            self.hurt(sim, get)
        t = f.recovered(sim, cache, dict(places), Sim())
        t.prev = {p: sim.prev[p] | {sim.content(p, a) for a in sim.allowed} for p in PAGES}
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

    def hurt(self, sim, get):
        """Damage to an image, before recovery: it is noticed, or the page is as it was before its
        last operation."""
        for p in PAGES:
            keys = [x + str(i) for x in 'HR' for i in OF[p]] + [
                f's{p}0', f's{p}1', 'w' + p, 'r', 'uh'] + [
                f'{x}{t}{e}' for x in 'hb' for t in range(cfg.lanes) for e in range(cfg.ring)]
            for k in keys:
                old = get(k)
                if k[0] in 'hbu':
                    ways = [None] if old else []
                elif k[0] in 'wr':
                    ways = [w for w in itertools.product((0, 1), repeat=len(old)) if w != old]
                else:
                    ways = ['scribble']
                for v in ways:
                    self.hurt_by(sim, get, p, k, v)

    def hurt_by(self, sim, get, p, k, v):
        self.hurts += 1
        try:
            f = Found(lambda x: v if x == k else get(x), sim)
            if not within(p, f.length) or f.intention is not None:
                return                            # (a rollback under way will store the page anew)
            got = f.content(p)
            f.verify(p)
        except Bad:
            return
        allowed = {sim.content(p, a) for a in sim.allowed}
        if got not in allowed:
            self.reverts += got in sim.prev[p]
            if got not in sim.prev[p]:
                raise Bad(f'{k} = {v} for {get(k)}, before recovery: page {p} reads {got}')

    def scribble(self, sim):
        """Damage to a quiet file that changes what is read must be noticed, by the place that
        counts."""
        for p in PAGES:
            if not within(p, sim.cur('N')):
                continue
            slots = [x + str(i) for x in 'HR' for i in OF[p]]
            for k in slots + ['w' + p, 'r', f's{p}0', f's{p}1']:
                old = sim.cur(k)
                if k[0] in 'wr':
                    ways = [w for w in itertools.product((0, 1), repeat=len(old)) if w != old]
                else:
                    others = [sim.cur(o) for o in slots] if k[0] in 'HR' else []
                    ways = ['scribble'] + [v for v in others if v != old]
                for v in ways:
                    if not self.scribble_by(sim, p, k, v):
                        return

    def scribble_by(self, sim, p, k, v):
        def get(x):
            return v if x == k else sim.cur(x)
        self.scribbles += 1
        valid = tuple(b ^ get('r')[PAGES.index(p)] for b in get('w' + p))
        content = tuple(get('HR'[b] + str(i)) for i, b in zip(OF[p], valid))
        want = S(p, content)
        places = (0, 1) if mut('sum_any_place') else (sim.place[p],)
        is_quiet = any(get(f's{p}{at}') == want for at in places)
        if is_quiet and content != sim.content(p):
            self.report(f'{k} = {v}: page {p} reads {content} for {sim.content(p)}, unnoticed')
            return False
        bases = chain(sim.recs, p, get('r'))
        for snap, n in live_of(sim.table()):
            if not within(p, n):
                continue
            got = []
            for i in OF[p]:
                what, where, _ = source(bases, valid, snap, i)
                got.append(where if what == 'rec' else get('HR'[where] + str(i)))
            b = next((b for b in bases if b[0] >= snap), None)
            known = b[3] if b else get(f's{p}{sim.place[p]}')
            if not mut('snap_unsummed') and S(p, got) != known:
                continue
            if tuple(got) != sim.content(p, sim.snaps[snap]):
                self.report(f'{k} = {v}: page {p} of snapshot {snap} reads {got}, unnoticed')
                return False
        if content != sim.content(p) and any(get(f's{p}{at}') == want for at in (0, 1)):
            self.unsure += 1
        return True

    def step(self, sim, op):
        """The state after an operation, and those after a crash in it."""
        t = sim.copy()
        t.check = self
        self.next = []
        self.runs += 1
        t.run(op)
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
        self.scribble(sim)
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
        self.scribble(sim)
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
        sim.check = self
        ops = ()
        for _ in range(length):
            op = rng.choice([k for k in cfg.kinds if sim.can(k)])
            ops += (op,)
            self.ops = ops
            self.next = []
            self.runs += 1
            sim.run(op)
            after, self.next = self.next, []
            if self.late():
                return
            self.scribble(sim)
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
        if name == 'resize':
            text += f' > {op[2]}'
        if name == 'logged_flip' and op[2]:
            text += f' / {op[2]}'
        return text
    return ', '.join(map(one, ops))


def read_history(text):
    ops = []
    for part in text.split(', '):
        words = part.split()
        name, x = words[0], words[1:]
        if name == 'crash':
            ops.append('crash')
        elif name in ('seal', 'close', 'roll'):
            ops.append((name, None))
        elif name in ('cut', 'grow'):
            ops.append((name, int(x[0])))
        elif name in ('drop', 'deploy', 'punch', 'ahead'):
            ops.append((name, x[0]))
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
MAIN = kinds('logged_flip 0, logged_flip 0 1, logged_flip 2, flip 0, multi 0 2, redo 0, '
             'region 0 1 2, punch P, cut 1, cut 2, grow 3, seal, roll, ' + DROPS)
ALL = MAIN + kinds('logged_flip 1, flip 0 1, flip 2, region 0 1, redo 0 1, redo 0 2, resize 0 > 1, '
                   'resize 0 > 2, resize 0 2 > 3, deploy P, punch Q, multi 0 1 2, ahead P, close, '
                   'grow 2')
RAM = kinds('flip 0, direct 0, direct 1, direct 2, multi 0 2, flip 0 1, region 0 1 2, deploy P, '
            'seal, drop oldest, drop newest')
SNAPS = kinds('logged_flip 0, logged_flip 0 1, flip 0, region 0 1, seal, deploy P, ' + DROPS)
REDO = kinds('logged_flip 0, logged_flip 1, redo 0, redo 0 1, redo 0 2, resize 0 > 1, '
             'resize 0 > 2, resize 0 2 > 3, region 0 1, seal, drop oldest, roll')
REGION = kinds('region 0 1 2, region 0 1, logged_flip 0, logged_flip 2, flip 1, multi 0 2, '
               'redo 0 1, deploy P, deploy Q, seal, drop oldest, roll')
CUT = kinds('cut 1, cut 2, grow 2, grow 3, resize 0 > 1, resize 0 2 > 3, logged_flip 0, '
            'logged_flip 0 1, flip 1, region 0 1, deploy P, seal, drop oldest, drop newest, roll')
UNDO = kinds('multi 0 2, multi 0 1 2, logged_flip 0, redo 0 2, region 0 1 2, flip 2, deploy Q, '
             'seal, drop oldest')
LANES = ALL + kinds('logged_flip 0 / 1, logged_flip 1 / 1')


def configure(mutant, kinds, lanes=1, ring=2, seals=3, eager=False):
    cfg.mutant, cfg.kinds, cfg.lanes, cfg.ring = mutant, kinds, lanes, ring
    cfg.seals, cfg.eager = seals, eager


def start(text):
    sim = Sim()
    sim.check = lambda s: None
    for op in read_history(text) if text else ():
        sim.run(op)
    return sim


def parts(depth):
    """Name, kinds, depth, lanes, ring, life, random sequences, operations that come before."""
    fixed = depth - (depth > 3)
    return [
        ('main', MAIN, depth, 1, 2, 1, 0, 'logged_flip 2, seal'),
        ('all', ALL, depth - 1, 1, 2, 1, 0, 'seal, logged_flip 0, seal'),
        ('snaps', SNAPS, depth + 1, 1, 2, 1, 0, 'seal'),
        ('ram', RAM, depth, 1, 2, 1, 0, 'seal'),
        ('redo', REDO, depth, 1, 2, 1, 0, 'redo 0, seal'),
        ('region', REGION, depth, 1, 2, 1, 0, 'region 0 1, seal'),
        ('cut', CUT, depth, 1, 2, 1, 0, 'logged_flip 0, seal'),
        ('undo', UNDO, depth, 1, 2, 1, 0, 'multi 0 2, seal'),
        ('life', MAIN, depth - 1, 1, 2, 2, 0, 'seal, logged_flip 0 1'),
        ('bases', ALL, fixed, 1, 2, 0, 0,
         'logged_flip 0, seal, logged_flip 1, seal, logged_flip 1'),
        ('rolled', ALL, fixed, 1, 2, 0, 0, 'logged_flip 0, seal, logged_flip 0, seal, roll'),
        ('random', LANES, 0, 2, 4, 0, 15 * depth ** 2, ''),
        ('random2', LANES, 0, 2, 2, 0, 15 * depth ** 2, 'seal'),
    ]


def run(depth, mutant, enough=1, eager=False, only=None, show=True):
    began = time.time()
    total = bad = runs = 0
    where = ''
    for name, kinds_, d, lanes, ring, life, many, before in parts(depth):
        if only and name not in only:
            continue
        configure('none', kinds_, lanes, ring, 3, eager)
        sim = start(before)
        configure(mutant, kinds_, lanes, ring, 5 if many else 3, eager)
        check = Check(enough)
        t0 = time.time()
        done = read_history(before) if before else ()
        if d:
            check.explore(sim, done, d, life)
        rng = random.Random(7)
        for _ in range(many):
            if check.late():
                break
            check.random(rng, 10, sim)
        total += check.images
        runs += check.runs
        bad += check.bad
        if cfg.hurt:
            print(f'  {name}: {check.hurts} times damaged before recovery, '
                  f'{check.reverts} times back to the state before')
        if mutant == 'none' and show:
            print(f'  {name}: depth {d}, {check.runs} operations from {check.states} states, '
                  f'{check.images} images, {check.scribbles} scribbles ({check.unsure} seen only '
                  f'by which place counts), {check.bad} violations, {time.time() - t0:.0f} s',
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
    cfg.hurt = mutant in BY_DAMAGE
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
    for early in (True, 'some'):
        wrong += run(max(depth - 1, 1), 'none', 3, early)
    for m in MUTANTS:
        cfg.hurt = m in BY_DAMAGE
        is_found = any(run(d, m) for d in range(2, depth + 1)) if search else follow(m)
        wrong += not is_found
        if not is_found:
            print(f'  NOT FOUND: {m}: {MUTANTS[m]}')
    print(f'{len(MUTANTS)} mutants, {wrong} wrong')
    return wrong


if __name__ == '__main__':
    args = [a for a in sys.argv[1:] if not a.startswith('--')]
    depth = int(args[0]) if args else 2
    only = [a[7:] for a in sys.argv if a.startswith('--only=')]
    cfg.hurt = '--hurt' in sys.argv
    if '--all' in sys.argv:
        sys.exit(run_all(depth, '--search' in sys.argv) != 0)
    mutant = args[1] if len(args) > 1 else 'none'
    bad = run(depth, mutant, 3, '--eager' in sys.argv, only)
    sys.exit((bad != 0) != (mutant != 'none'))
