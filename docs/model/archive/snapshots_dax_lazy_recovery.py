"""A part of `snapshots_dax_lazy.py`: the geometry, how a snapshot is read, and recovery.

Nothing here can be run by itself. `Found` is what recovery makes of an image.
"""


class cfg:
    """What a run is about. `snapshots_dax_lazy.configure` sets it."""
    mutant = 'none'
    ring = 2
    lanes = 1
    eager = False
    hurt = False
    seals = 3
    kinds = ()


def mut(*names):
    return cfg.mutant in names


PAGE = {0: 'P', 1: 'P', 2: 'Q'}
OF = {'P': (0, 1), 'Q': (2,)}
PAGES = ('P', 'Q')


class Bad(Exception):
    pass


def S(page, content):
    """An ideal hash. It does not depend on words: a deployment does not change a page's sum."""
    return ('S', page) + tuple(content)


# ---- lengths -------------------------------------------------------------------------------------
# 3: both pages. 2: page P. 1: the end lies inside slice 0, so slice 1 of page P is past it.


def within(page, length):
    return page == 'P' or length == 3


def first_half(v):
    """A slice of which only the first half is left: zeroes follow."""
    return v if v in (0, 'hole', 'junk') or type(v) is tuple else ('half', v)


def cut_content(p, content, length):
    """The content of a page once the length is this one."""
    if p == 'Q':
        return (0,) if length < 3 else content
    return (first_half(content[0]), 0) if length == 1 else content


def cleaned(length, read):
    """What the clean-up past the length stores, in both slots: {chunk: value}."""
    out = {}
    if length < 3:
        out.update({'H2': 0, 'R2': 0, 'wQ': (0,), 'r': (read('r')[0], 0)})
        out.update({'sQ0': S('Q', (0,)), 'sQ1': S('Q', (0,))})
    if length == 1:
        for side in 'HR':
            out[side + '0'] = first_half(read(side + '0'))
            out[side + '1'] = 0
    return out


# ---- how a snapshot is read ----------------------------------------------------------------------
# A record is (epoch, pages, words, sums, kept). The words of a run of pages are one side.


def word_of(record, page):
    e, pages, words, sums, kept = record
    n = pages.index(page)
    return (words,) * len(OF[page]) if type(words) is int else words[n], sums[n]


def chain(recs, page, r=(0, 0)):
    """The bases of a page, oldest first: [epoch, validity, {slice: kept bytes}, sum]."""
    found = {}
    for record in recs:
        if page not in record[1]:
            continue
        word, sum_ = word_of(record, page)
        if mut('base_slice_word'):
            word = tuple(b ^ r[PAGES.index(page)] for b in word)
        b = found.setdefault(record[0], [record[0], word, {}, sum_])
        b[1], b[3] = word, sum_                   # the newest record of an epoch says the slots
        for i, v in record[4]:
            b[2].setdefault(i, v)
    return [found[e] for e in sorted(found)]


def source(bases, now, k, i):
    """Where slice i of snapshot k is: ('rec', bytes, None) or ('slot', side, epoch or None).
    `now` is the present validity."""
    at = OF[PAGE[i]].index(i)
    for n, (e, w, kept, _) in enumerate(bases):
        if e < k or (mut('reader_one_epoch') and e != k):
            continue
        if i in kept and not mut('keeps_forgotten'):
            return 'rec', kept[i], None
        after = bases[n + 1][1] if n + 1 < len(bases) else now
        if mut('one_base') and n + 1 < len(bases):
            continue
        if w[at] != after[at]:
            return 'slot', w[at], e
    return 'slot', now[at], None


def live_of(table):
    """[(snapshot, length)] of those that are live, oldest first."""
    return [(k, n) for k, state, n in table if state == 'sealed']


def needed(table, e):
    return any(k <= e for k, _ in live_of(table))


def newest_of(table, page):
    """The newest live snapshot that has this page."""
    if mut('newest_only'):
        t = table
        return t[-1][0] if t and t[-1][1] == 'sealed' and within(page, t[-1][2]) else 0
    return max((k for k, n in live_of(table) if within(page, n)), default=0)


def generation(table):
    return sum(1 + (state == 'dropped') for _, state, _ in table)


# ---- recovery ------------------------------------------------------------------------------------


class Found:
    """Recovery makes this of an image. `get` tells of a chunk. `more`: bases of an earlier one."""

    def __init__(f, get, sim, more=()):
        f.get, f.sim = get, sim
        f.over = {}                               # what recovery stores
        f.table, f.length, f.intention = get('T'), get('N'), get('I')
        f.words = {p: list(get('w' + p)) for p in PAGES}
        f.r = list(get('r'))
        f.read_records(more)
        undo = f.read_undo_place()
        f.redo = undo if undo and undo[0] == 'redo' else None
        if f.redo and f.redo[1] and not mut('redo_length_ignored'):
            f.length = f.redo[1]
        if undo and undo[0] == 'undo':
            for k, v in undo[1]:
                if k == 'r':
                    f.r = list(v)
                else:
                    f.words[k[1]] = list(v)
        f.sums = {p: [] for p in PAGES}           # what records vouch for
        firsts = f.read_rings()
        f.make_bases(firsts)
        f.early = {}
        for p in PAGES:
            if tuple(f.words[p]) != get('w' + p):
                f.early['w' + p] = tuple(f.words[p])
        if tuple(f.r) != get('r'):
            f.early['r'] = tuple(f.r)
        f.over.update(f.early)
        f.apply_redo()
        for k, v in cleaned(f.length, f.slot_value).items():
            f.over[k] = v
        if f.length < 3:
            f.words['Q'], f.r[1] = [0], 0

    def read_records(f, more):
        sim = f.sim
        recs = list(sim.recs[:len(sim.recs) - len(sim.pend)])
        for n in sim.pend:
            head = f.get(f'k{n}')
            if head is None:
                continue
            rest = f.get(f'd{n}') if f'd{n}' in sim.c else ()
            e, pages, words, sums, names = head
            if rest is None and not mut('run_unchecked' if sums is None else 'keep_unchecked'):
                continue
            if sums is None:
                sums = rest if rest is not None else tuple('torn' for _ in pages)
                recs.append((e, pages, words, sums, ()))
                continue
            kept = rest if rest is not None else tuple((i, 'torn') for i in names)
            recs.append((e, pages, words, sums, kept))
        recs += [r for r in more if r not in recs]
        f.recs = [r for r in recs if needed(f.table, r[0])]

    def read_undo_place(f):
        """The undo record or the redo record, if it is whole. None: no record, or a torn one."""
        head = f.get('uh')
        if head is None:
            return None
        body = f.get('ub')
        if body is not None and (body[0] == head or mut('undo_unchecked')):
            return body[1]
        return None

    def read_rings(f):
        """Stores words that flip records cover. [(page, slices)] of those that may lack a base."""
        get, firsts = f.get, []
        batch = cfg.ring // 2
        now = generation(f.table)
        for t in range(cfg.lanes):
            entries, voids = [], []
            for e in range(cfg.ring):
                h = get(f'h{t}{e}')
                if h is None:
                    continue
                b = get(f'b{t}{e}')
                if b is None or b[0] != h[1]:
                    continue
                (voids if h[0] == 'void' else entries).append(b)
            last = max([b[0] for b in entries + voids], default=0)
            upto = last - last % batch - 1
            for seq, p, sides, data, gen, sum_ in sorted(entries):
                if seq < upto or any(seq < b[0] and b[1] == p for b in voids):
                    continue
                if not within(p, f.length):
                    continue
                if seq == last and not all(get(k) == v for k, v in data):
                    continue
                for i, side in sides:
                    f.words[p][OF[p].index(i)] = side ^ f.r[PAGES.index(p)]
                if sum_ is not None:
                    f.sums[p].append(sum_)
                if seq == last and (gen == now or mut('gen_ignored')):
                    firsts.append((p, [i for i, _ in sides]))
        return firsts

    def valid(f, p):
        return tuple(b ^ f.r[PAGES.index(p)] for b in f.words[p])

    def make_bases(f, firsts):
        """Bases that did not arrive, though their flip records did."""
        f.made = []
        for p, slices in firsts:
            last = newest_of(f.table, p)
            if last and not any(b[0] >= last for b in chain(f.recs, p)):
                w = tuple(1 - b if i in slices else b for i, b in zip(OF[p], f.valid(p)))
                content = [f.get('HR'[b] + str(i)) for i, b in zip(OF[p], w)]
                if mut('synth_slice_word'):
                    w = tuple(1 - b if i in slices else b for i, b in zip(OF[p], f.words[p]))
                f.made.append((last, (p,), (w,), (S(p, content),), ()))
        f.recs += f.made

    def apply_redo(f):
        f.log = {}
        if not f.redo:
            return
        _, length, items, sums = f.redo
        for p, stays, bits in items:
            if not within(p, f.length):
                continue
            for i, b in bits:
                f.words[p][OF[p].index(i)] = b
                f.log['w' + p] = tuple(f.words[p])
            for i, v in stays:
                side = f.valid(p)[OF[p].index(i)]
                f.log['HR'[side] + str(i)] = v
        for p, sum_ in sums:
            if within(p, f.length):
                f.sums[p].append(sum_)
        if length and not mut('redo_length_ignored'):
            f.log['N'] = length
        f.over.update(f.log)

    def slot_value(f, k):
        return f.over[k] if k in f.over else f.get(k)

    def content(f, p):
        return tuple(f.slot_value('HR'[b] + str(i)) for i, b in zip(OF[p], f.valid(p)))

    def state(f):
        return tuple(v for p in PAGES
                     for v in (f.content(p) if within(p, f.length) else (None,)))

    def snapshot(f, k, length):
        out = []
        for p in PAGES:
            if not within(p, length):
                out.append(None)
                continue
            bases = chain(f.recs, p, f.r)
            got = []
            for i in OF[p]:
                what, where, _ = source(bases, f.valid(p), k, i)
                got.append(where if what == 'rec' else f.slot_value('HR'[where] + str(i)))
            b = next((b for b in bases if b[0] >= k), None)
            if b and b[3] != S(p, got):
                raise Bad(f'the sum of page {p} of snapshot {k} does not match: {b[3]}, {got}')
            out += got
        return tuple(out)

    def verify(f, p):
        """Which place matches, or None: the sum of a record did."""
        if p == 'Q' and f.length < 3:
            return 0
        want = S(p, f.content(p))
        for at in (0, 1):
            if f.slot_value(f's{p}{at}') == want:
                return at
        if want in f.sums[p]:
            return None
        raise Bad(f'page {p} is damaged: {want} is in no place')

    def look(f, sim, what):
        """Compares with what may be there. The place of each page's sum."""
        got = f.state()
        if f.intention is None and got not in sim.allowed:
            raise Bad(f'{what}: {got}, may be {sim.allowed}')
        seen = set()
        for k, n in live_of(f.table):
            seen.add(k)
            want = sim.snaps.get(k)
            if want is None:
                raise Bad(f'{what}: snapshot {k} came back')
            snap = f.snapshot(k, n)
            if snap != want:
                raise Bad(f'{what}: snapshot {k} is {snap}, was {want}')
        missing = set(sim.snaps) - seen - {sim.may}
        if missing:
            raise Bad(f'{what}: snapshots {missing} are gone')
        return {p: f.verify(p) for p in PAGES}

    def interrupted(f, places):
        """What a recovery that the power ends may leave: [(stores, bases that arrived)]. First come
        words, and a barrier. Then come the stores of a redo record. Bases come at any time before
        the new session, whose superblock voids all records. Then comes the clean-up."""
        bases = [] if mut('synth_not_written') else f.made
        steps = [({k: v}, []) for k, v in f.early.items()] + [({}, [b]) for b in bases]
        if len(steps) > 1 or (f.log and steps):
            steps.append((f.early, bases))
        for some in [[], bases] if bases else [[]]:
            steps += [(dict(f.early, **{k: v}), some) for k, v in f.log.items()]
            if len(f.log) > 1:
                steps += [(dict(f.early, **{k: v for k, v in f.log.items() if k != left}), some)
                          for left in f.log]
        if f.length < 3:
            done = dict(f.early, **f.log)
            done.update((k, None) for k in f.sim.c if k[0] in 'hu')
            if not mut('sum_not_adopted'):
                done.update((f's{p}0', S(p, f.content(p))) for p in PAGES if places[p] is None)
            clean = cleaned(f.length, lambda k: done[k] if k in done else f.get(k))
            steps += [(dict(done, **{k: v}), bases) for k, v in clean.items()]
        return steps

    def recovered(f, sim, cache, places, new):
        """Life goes on, in `new`."""
        t = new
        t.c = {}
        for k in sim.c:
            if k[0] in 'HRwsr' or k in 'NTI':
                t.c[k] = (f.over[k],) if k in f.over else (cache[k],) if k in cache else ('junk',)
        t.c['uh'] = t.c['ub'] = (None,)
        t.c['N'] = (f.length,)
        t.boot()
        # A second recovery finds no flip record: without its record the base is lost.
        t.recs = [r for r in f.recs if not (mut('synth_not_written') and r in f.made)]
        t.v = sim.v
        t.check = sim.check
        t.snaps = {k: sim.snaps[k] for k, _ in live_of(f.table)}
        for p in PAGES:
            if places[p] is None:
                if not mut('sum_not_adopted'):
                    t.c[f's{p}0'] = (S(p, f.content(p)),)
                places[p] = 0
            t.place[p] = places[p]
            bases = chain(t.recs, p, f.r)
            now = f.valid(p)
            live = [k for k, n in live_of(f.table) if within(p, n)]
            t.epoch[p] = max([b[0] for b in bases], default=0)
            at = {(w[1], i) for k in live for i in OF[p] for w in [source(bases, now, k, i)]
                  if w[0] == 'slot'}
            t.valid[p] = frozenset(i for i, b in zip(OF[p], now) if (b, i) in at)
            t.other[p] = frozenset(i for i, b in zip(OF[p], now) if (1 - b, i) in at)
        t.now = f.state()
        return t
