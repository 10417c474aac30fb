#!/usr/bin/env python3
"""Brute-force check of the repair of a page from a snapshot: rules B15 to B18 of docs/protocols/sums.md.

One page of two slices. A slice has two slots. A word names the valid one, and a durable word that of
the last durable point. Medium `dax` has a point in each operation, medium `cache` makes one when it
is told to. A sum is linear: here it is the slices themselves. A keep record has an epoch and slices,
and the first one since a seal has the sum of the page. Snapshots are sealed and dropped. One slot is
damaged once, while the page is verified or not. Then the page is repaired, and the history goes on.

After a repair the page must be what it was at the seal of the newest snapshot that has it whole. No
snapshot may read other bytes without an error, unless it did so before the repair. That must hold
after each step, after a crash there, and later.

Usage: page_repair.py [DEPTH] [MUTANT]      or: page_repair.py --all [DEPTH]
"""
import sys

BAD = 1 << 20
MUTANTS = {
    'unproven': 'a snapshot counts as whole without a sum that fits',
    'kept_is_whole': 'a snapshot counts as whole if all of its slices come from records',
    'older_record': 'a sum of a record from before the seal counts as well',
    'any_sum': 'each record has the sum of the page before its change, and each since the seal counts',
    'settled_always': 'the sum of the settled state counts as well if there are records',
    'oldest': 'the oldest snapshot that has the page whole is taken',
    'under_reader': 'a page is replaced although a newer snapshot reads slices of it',
    'without_sums': 'keep records have no sums',
    'present_sum': 'a point keeps slices with the sum of the present',
    'whole_replaced': 'a page that is not damaged is replaced',
}
HARMLESS = {
    'keeps_nothing': 'the slices that the snapshot itself reads are not kept: it finds equal ones afterwards',
}
MUT = ['none']
STATS = {'states': 0, 'repairs': 0, 'left': 0, 'blocked': 0}


def is_(name):
    return MUT[0] == name


class Violation(Exception):
    pass


class Damaged(Exception):
    pass


class Page:
    def __init__(s, medium):
        s.medium, s.fresh = medium, 1
        s.slots, s.valid, s.durable = [[1, 0], [1, 0]], [0, 0], [0, 0]
        # The sums of the present and of the last point, on the medium.
        s.present_sum = s.durable_sum = (1, 1)
        s.is_verified = True
        s.records, s.live, s.highest = [], [], 0
        # What no damage has touched: for the checks alone.
        s.truth, s.seals, s.tainted = [1, 1], {}, set()
        # `is_clean`: no operation has met a damaged page that was taken for verified.
        s.damaged = s.repaired = False
        s.is_clean = True

    def copy(s):
        t = Page.__new__(Page)
        t.__dict__.update(s.__dict__)
        t.slots = [list(pair) for pair in s.slots]
        t.valid, t.durable, t.truth = list(s.valid), list(s.durable), list(s.truth)
        t.records, t.live, t.seals, t.tainted = list(s.records), list(s.live), dict(s.seals), set(s.tainted)
        return t

    def key(s):
        return repr(sorted(s.__dict__.items(), key=lambda item: item[0]))

    # ---- what the engine knows ----

    def content(s):
        return tuple(s.slots[i][s.valid[i]] for i in (0, 1))

    def verify(s):
        """The first touch in a session."""
        if not s.is_verified:
            if s.content() not in (s.present_sum, s.durable_sum):
                raise Damaged
            s.present_sum = s.durable_sum = s.content()
            s.is_verified = True

    def is_whole(s):
        return s.content() == s.present_sum if s.is_verified else s.content() in (s.present_sum, s.durable_sum)

    def settled_sum(s):
        return s.durable_sum if s.is_verified else None

    def find(s, k):
        """Returns the slices of snapshot k, and those that it reads from their slots."""
        found = {}
        for epoch, slices, _ in sorted(s.records, key=lambda record: record[0]):
            if epoch >= k:
                for i, value in slices:
                    found.setdefault(i, value)
        slots = [i for i in (0, 1) if i not in found]
        return tuple(found.get(i, s.slots[i][s.durable[i]]) for i in (0, 1)), slots

    def owed(s):
        if not s.live:
            return []
        kept = {i for epoch, slices, _ in s.records if epoch >= s.live[-1] for i, _ in slices}
        return [i for i in (0, 1) if i not in kept]

    def keep(s, slices, total):
        slices = [i for i in slices if i in s.owed()]
        if slices:
            is_first = not any(epoch >= s.live[-1] for epoch, _, _ in s.records)
            total = total if (is_first or is_('any_sum')) and not is_('without_sums') else None
            s.records.append((s.live[-1], tuple((i, s.slots[i][s.durable[i]]) for i in slices), total))

    # ---- operations ----

    def store(s, changes):
        for i, value in changes.items():
            if s.medium == 'dax' or s.valid[i] == s.durable[i]:
                s.valid[i] ^= 1
            s.slots[i][s.valid[i]] = value

    def settle(s):
        s.durable, s.durable_sum = list(s.valid), s.present_sum

    def write(s, slices, again=False):
        """Writes new bytes, or those that are there already but for damage."""
        old = s.content()
        try:
            s.verify()
        except Damaged:
            if len(slices) < 2 or s.owed():
                return
        if s.medium == 'dax':
            s.keep(slices, s.present_sum)
        s.fresh += 1
        data = {i: s.truth[i] if again else s.fresh for i in slices}
        new = [data.get(i, old[i]) for i in (0, 1)]
        s.present_sum = tuple(new if len(slices) == 2 else (a ^ b ^ c for a, b, c in zip(s.present_sum, old, new)))
        s.is_verified = True
        s.truth = [data.get(i, s.truth[i]) for i in (0, 1)]
        s.store(data)
        if s.medium == 'dax':
            s.settle()

    def point(s):
        changed = [i for i in (0, 1) if s.valid[i] != s.durable[i]]
        if changed:
            try:
                s.verify()
                s.keep(changed, s.present_sum if is_('present_sum') else s.durable_sum)
            except Damaged:
                pass
        s.settle()

    def seal(s):
        s.point()
        s.highest += 1
        s.live.append(s.highest)
        s.seals[s.highest] = tuple(s.truth)

    def drop(s, k):
        s.live.remove(k)

    def damage(s, i):
        s.slots[i][s.valid[i]] ^= BAD
        s.damaged, s.is_clean = True, not s.is_verified

    def reopen(s):
        s.point()
        s.is_verified = False

    def is_proven(s, k, found, slots):
        if is_('unproven') or is_('kept_is_whole') and not slots:
            return True
        since = sorted((r for r in s.records if r[0] >= k), key=lambda record: record[0])
        sums = [total for _, _, total in since if total is not None]
        if not since or is_('settled_always') and found == s.settled_sum():
            return found == s.settled_sum()
        if is_('any_sum') or is_('older_record'):
            return found in sums or is_('older_record') and found in [r[2] for r in s.records]
        return bool(sums) and found == sums[0]

    def repair(s, check):
        if s.is_whole() and not is_('whole_replaced'):
            return
        STATS['repairs'] += 1
        has_record = lambda k: any(epoch >= k for epoch, _, _ in s.records)
        expected = [k for k in s.live if has_record(k) and s.find(k)[0] == s.seals[k]]
        for k in s.live if is_('oldest') else reversed(s.live):
            found, slots = s.find(k)
            if s.is_proven(k, found, slots):
                break
        else:
            STATS['left'] += 1
            if expected and s.is_clean:
                raise Violation(f'snapshots {expected} have the page whole, and none was taken')
            return
        owed = s.owed()
        if owed and k != s.live[-1] and not is_('under_reader'):
            STATS['blocked'] += 1
            return
        record = (k, tuple((i, found[i]) for i in owed), found)
        before = s.copy()
        if owed and not is_('keeps_nothing'):
            s.records.append(record if not has_record(k) else (*record[:2], None))
            check(s)
        s.store(dict(enumerate(found)))
        s.present_sum, s.is_verified, s.truth, s.repaired = found, True, list(s.seals[k]), True
        if s.medium == 'dax':
            s.settle()
        check(s)
        if s.content() != s.seals[k]:
            raise Violation(f'the page is {s.content()}, and was {s.seals[k]} in snapshot {k}')
        if any(j > k for j in expected) and s.is_clean:
            raise Violation(f'snapshots {expected} have the page whole, and {k} was taken')
        if before.is_whole():
            raise Violation('a page that is not damaged was replaced')

    # ---- checks ----

    def wrong(s):
        """Returns the snapshots that read bytes they never had, without an error."""
        wrong = set()
        for k in s.live:
            found, slots = s.find(k)
            is_refused = slots and not s.is_verified and not s.is_whole()
            if found != s.seals[k] and not is_refused:
                wrong.add(k)
        return wrong

    def power_loss(s):
        """The state of the last point. What was kept since may be there or not."""
        t = s.copy()
        t.valid, t.present_sum, t.is_verified = list(t.durable), t.durable_sum, False
        return t


def check(page, tainted):
    STATS['states'] += 1
    states = [page] + ([page.power_loss()] if page.medium == 'cache' else [])
    for state in states:
        new = {k for k in state.wrong() if k not in tainted}
        if new:
            raise Violation(f'snapshots {sorted(new)} read wrong bytes without an error')


def operations(page):
    if page.fresh < 5:
        yield from (('write', slices) for slices in ((0,), (1,), (0, 1)))
        if page.damaged and not page.is_clean:
            yield ('write', (0,), True)
    if len(page.live) < 3 and page.highest < 3:
        yield ('seal',)
    yield from (('drop', k) for k in page.live)
    if page.medium == 'cache':
        yield ('point',)
    if not page.damaged:
        yield from (('damage', i) for i in (0, 1))
    if page.is_verified:
        yield ('reopen',)
    if page.damaged and not page.repaired or is_('whole_replaced'):
        yield ('repair',)


class Search:
    def __init__(s):
        s.seen, s.did = {}, []

    def explore(s, page, depth):
        key = page.key()
        if depth == 0 or s.seen.get(key, 0) >= depth:
            return
        s.seen[key] = depth
        for name, *args in list(operations(page)):
            t = page.copy()
            s.did.append(' '.join([name, *map(str, args)]))
            if name == 'repair':
                tainted = t.wrong() | t.power_loss().wrong() | t.tainted
                t.repair(lambda state: check(state, tainted))
                t.tainted = tainted
            else:
                getattr(t, name)(*args)
                if t.repaired:
                    check(t, t.tainted)
                elif t.damaged:
                    t.tainted |= t.wrong()
            s.explore(t, depth - 1)
            s.did.pop()


def run(depth, mutant):
    MUT[0] = mutant
    STATS.update(dict.fromkeys(STATS, 0))
    bad = 0
    for medium in ('dax', 'cache'):
        search = Search()
        try:
            search.explore(Page(medium), depth)
        except Violation as violation:
            bad += 1
            print(f'  {medium}: {", ".join(search.did)}: {violation}')
    print(f'{mutant}: depth {depth}, ' + ', '.join(f'{n} {k}' for k, n in STATS.items()) + f', {bad} violations',
          flush=True)
    return bad


def main():
    args = sys.argv[1:]
    if args[:1] == ['--all']:
        depth = int(args[1]) if len(args) > 1 else 7
        wrong = sum(run(depth, name) for name in ('none', *HARMLESS))
        for name in MUTANTS:
            if not run(depth, name):
                wrong += 1
                print(f'  NOT FOUND: {name}: {MUTANTS[name]}')
        sys.exit(wrong != 0)
    depth, mutant = int(args[0]) if args else 7, args[1] if len(args) > 1 else 'none'
    sys.exit((run(depth, mutant) != 0) != (mutant != 'none' and mutant not in HARMLESS))


if __name__ == '__main__':
    main()
