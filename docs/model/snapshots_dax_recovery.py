"""A part of `snapshots_dax.py`: the geometry, how a snapshot is read, and recovery.

Nothing here can be run by itself. `Found` is what recovery makes of an image.
"""


class cfg:
    """What a run is about. `snapshots_dax.configure` sets it."""
    mutant = 'none'
    ring = 2
    lanes = 1
    seals = 3
    facts = True
    kinds = ()


def mut(*names):
    return cfg.mutant in names


PAGE = {0: 'P', 1: 'P', 2: 'Q'}
OF = {'P': (0, 1), 'Q': (2,)}
PAGES = ('P', 'Q')


class Bad(Exception):
    pass


# ---- lengths -------------------------------------------------------------------------------------
# 3: both pages. 2: page P. 1: the end lies inside slice 0, so slice 1 of page P is past it.


def within(page, length):
    return page == 'P' or length == 3


def first_half(v):
    """A slice of which only the first half is left: zeroes follow."""
    return v if v in (0, 'hole', 'junk') or type(v) is tuple else ('half', v)


def cut_content(page, content, length):
    """The content of a page once the length is this one."""
    if page == 'Q':
        return (0,) if length < 3 else content
    return (first_half(content[0]), 0) if length == 1 else content


def cleaned(length, read):
    """What the clean-up past the length stores, in both slots: {chunk: value}."""
    out = {}
    if length < 3:
        out.update({'H2': 0, 'R2': 0, 'wQ': (0,), 'r': (read('r')[0], 0)})
    if length == 1:
        for side in 'HR':
            out[side + '0'] = first_half(read(side + '0'))
            out[side + '1'] = 0
    return out


# ---- tables and records --------------------------------------------------------------------------
# A table is (live, highest number, intention): live is ((snapshot, length), ...), oldest first.
# A record is (epoch, page, ((slice, bytes), ...)).


def kept_of(recs, page):
    """{slice: {epoch: bytes}}"""
    found = {i: {} for i in OF[page]}
    for e, p, kept in recs:
        if p == page:
            for i, v in kept:
                if found[i].setdefault(e, v) != v:
                    raise Bad(f'two records of epoch {e}, slice {i}: {found[i][e]} and {v}')
    return found


def source(kept, i, k):
    """The bytes that snapshot k has of a slice by a record: (bytes,). None: by its valid slot."""
    after = [e for e in kept[i] if (e == k if mut('reader_one_epoch') else e >= k)]
    if not after:
        return None
    return (kept[i][max(after) if mut('reader_newest') else min(after)],)


def newest_of(table, page):
    """L(p): the newest live snapshot whose length reaches the page. 0: none."""
    live = table[0]
    if mut('newest_only'):
        return live[-1][0] if live and within(page, live[-1][1]) else 0
    return max((k for k, n in live if within(page, n) or mut('l_global')), default=0)


def is_needed(table, recs, record):
    """A live snapshot reads a slice of this record."""
    e, p, kept = record
    for i, _ in kept:
        before = max((other for other, q, of in recs if q == p and other < e
                      and (mut('free_by_page') or i in dict(of))), default=0)
        if any(before < k <= e for k, _ in table[0]):
            return True
    return False


# ---- recovery ------------------------------------------------------------------------------------


class Found:
    """Recovery makes this of an image. `get` tells of a chunk."""

    def __init__(f, get, sim):
        f.get, f.sim = get, sim
        f.over = {}                               # what recovery stores
        f.table, f.length = get('T'), get('N')
        f.intention = f.table[2]
        f.words = {p: list(get('w' + p)) for p in PAGES}
        f.r = list(get('r'))
        f.read_records()
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
        f.read_rings()
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

    def read_records(f):
        """All whole records. One that is not whole ends its segment."""
        sim, ended = f.sim, set()
        f.recs = []
        for n, record in sim.medium.items():
            if n not in sim.pend:
                f.recs.append(record)
                continue
            segment = sim.pend[n]
            head, kept = f.get(f'k{n}'), f.get(f'd{n}')
            if head is None or (kept is None and not mut('keep_unchecked')):
                ended.add(segment)
            elif segment not in ended:
                e, p, names = head
                f.recs.append((e, p, kept or tuple((i, 'torn') for i in names)))

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
        """Stores words that flip records cover."""
        get = f.get
        batch = cfg.ring // 2
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
            for seq, p, sides, data in sorted(entries):
                if seq < upto or any(seq < b[0] and b[1] == p for b in voids):
                    continue
                if not within(p, f.length):
                    continue
                if seq == last and not all(get(k) == v for k, v in data):
                    continue
                for i, side in sides:
                    f.words[p][OF[p].index(i)] = side ^ f.r[PAGES.index(p)]

    def valid(f, p):
        return tuple(b ^ f.r[PAGES.index(p)] for b in f.words[p])

    def apply_redo(f):
        f.log = {}
        if not f.redo:
            return
        _, length, items = f.redo
        for p, stays, bits in items:
            if not within(p, f.length):
                continue
            for i, b in bits:
                f.words[p][OF[p].index(i)] = b
                f.log['w' + p] = tuple(f.words[p])
            for i, v in stays:
                side = f.valid(p)[OF[p].index(i)]
                f.log['HR'[side] + str(i)] = v
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
            kept = kept_of(f.recs, p)
            for i, b in zip(OF[p], f.valid(p)):
                by = source(kept, i, k)
                if by is None:
                    by = (f.slot_value('HR'[b] + str(i)) if within(p, f.length) else 0,)
                out += by
        return tuple(out)

    def look(f, sim, what):
        """Compares with what may be there."""
        got = f.state()
        if f.intention is None and got not in sim.allowed:
            raise Bad(f'{what}: {got}, may be {sim.allowed}')
        seen = set()
        for k, n in f.table[0]:
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
        if sim.undo and sim.undo not in seen and (f.intention or got == sim.then != sim.now):
            raise Bad(f'{what}: a rollback that cannot be undone')
        if cfg.facts:
            f.check_facts(sim, what)

    def check_facts(f, sim, what):
        """A record never becomes false, though its snapshot is dropped."""
        for e, p, kept in f.recs:
            for i, v in kept:
                if v != (sim.ever[e][i] or 0):
                    raise Bad(f'{what}: a record of {e} says {v} of slice {i}, was {sim.ever[e]}')

    def interrupted(f):
        """What a recovery that the power ends may leave: [stores]. First come words, and a barrier.
        Then come the stores of a redo record. The superblock of the new session then voids all
        records of the log. Then comes the clean-up."""
        steps = [{k: v} for k, v in f.early.items()]
        if len(steps) > 1 or (f.log and steps):
            steps.append(f.early)
        steps += [dict(f.early, **{k: v}) for k, v in f.log.items()]
        if len(f.log) > 1:
            steps += [dict(f.early, **{k: v for k, v in f.log.items() if k != left})
                      for left in f.log]
        if f.length < 3:
            done = dict(f.early, **f.log)
            done.update((k, None) for k in f.sim.c if k[0] in 'hu')
            clean = cleaned(f.length, lambda k: done[k] if k in done else f.get(k))
            steps += [dict(done, **{k: v}) for k, v in clean.items()]
        return steps

    def recovered(f, sim, cache, new):
        """Life goes on, in `new`."""
        t = new
        t.c = {}
        for k in sim.c:
            if k[0] in 'HRwr' or k in 'NT':
                t.c[k] = (f.over[k],) if k in f.over else (cache[k],) if k in cache else ('junk',)
        t.c['uh'] = t.c['ub'] = (None,)
        t.c['N'] = (f.length,)
        t.boot()
        t.dram = f.table
        t.medium = dict(enumerate(f.recs))
        t.nrec = len(f.recs)
        t.index = list(f.recs)
        t.v = sim.v
        t.check = sim.check
        t.snaps = {k: sim.snaps[k] for k, _ in f.table[0]}
        t.ever = dict(sim.ever)
        t.now = f.state()
        return t
