#!/usr/bin/env python3
"""A part of snapshot_import.py: a receiving file, its store of snapshots, and its spool."""
import itertools

PAGE = (0, 0, 1, 1)                               # the page of a slice
BAD, BADZ, SPOILED = -1, -2, 'spoiled'            # damage; damage that reads as zeros; a spoiled frame
MUT = ['none']
STATS = {'images': 0, 'operations': 0, 'spools': 0, 'spoiled': 0, 'interleavings': 0}


def is_(name):
    return MUT[0] == name


class Violation(Exception):
    pass


class Expected(Exception):
    """An error that the caller may get."""


def content(state):
    """With zeros past the end: the content sum is linear, so the model takes the slices themselves."""
    return tuple(state) + (0,) * (4 - len(state))


def pages_of(length):
    return range((length + 1) // 2)


class Stream:
    def __init__(s, base, to, forged=False):
        s.base, s.to, s.name = base, to, f'x{to}'
        s.sum = (77,) * 4 if forged else content(to)
        old, new = content(base or ()), content(to)
        s.frames = []
        for p in pages_of(len(to)):
            of_page = {i: new[i] for i in range(4) if PAGE[i] == p}
            if base is not None:
                of_page = {i: v for i, v in of_page.items() if v != old[i]}
            if any(of_page.values()) or base is not None and of_page:
                s.frames.append((len(s.frames), p, tuple(of_page.items())))

    def is_forged(s):
        return s.sum[0] == 77

    def __eq__(s, other):
        return isinstance(other, Stream) and repr(s) == repr(other)

    def __hash__(s):
        return hash(repr(s))

    def __repr__(s):
        return f'{"forged " if s.is_forged() else ""}{s.base}->{s.to}'


class File:
    """The cells: P slices, L length, T table, R records, D the last durable point (on `cache`). A cell has its durable
    value and those since. The table: entries (number, length, name), the highest number, the rollback under way."""
    images_each, may_rot = 6, False

    def __init__(s, medium, rng):
        s.medium, s.rng, s.seen = medium, rng, set()
        s.c = {f'P{i}': [0] for i in range(4)} | {'L': [0], 'T': [((), 0, 0)], 'D': [((0,) * 4, 0)]}
        s.spool, s.fresh, s.truth = None, 0, {}
        s.begin()

    def begin(s):
        """DRAM at the beginning of a session."""
        s.set, s.memo, s.touched, s.poisoned, s.space = s.cur('T')[0], {0: None, 1: None}, set(), False, 99
        s.allowed, s.spool_before, s.why, s.after = [], s.spool, None, None

    def copy(s):
        t = File.__new__(File)
        t.__dict__.update(s.__dict__)
        t.c = {k: list(v) for k, v in s.c.items()}
        t.memo, t.truth, t.touched = dict(s.memo), dict(s.truth), set(s.touched)
        return t

    def key(s):
        return tuple((k, tuple(v)) for k, v in sorted(s.c.items())), repr(s.spool), tuple(s.truth.items())

    # ---- the medium ----

    def cur(s, k):
        return s.c[k][-1]

    def put(s, k, v):
        if s.c.setdefault(k, [None])[-1] != v:
            s.c[k].append(v)
        s.touched.add(k)
        yield

    def drain(s):
        """Makes durable what this thread has stored. On `cache` a drain does nothing."""
        if s.medium == 'dax':
            for k in s.touched & set(s.c):
                s.c[k] = s.c[k][-1:]

    def settle(s):
        """Makes the store durable."""
        s.drain()
        if s.medium == 'cache':
            for k in s.c:
                if k[0] in 'TR':
                    s.c[k] = s.c[k][-1:]

    def crashes(s, most=None):
        """Images of a crash now. A process may die on each medium, and leaves all of its stores."""
        dead = s.copy()
        if s.medium == 'dax':
            dead.c = {k: v[-1:] for k, v in s.c.items()}
        dead.begin()
        images = [dead]
        cells = {k: list(dict.fromkeys(v)) for k, v in s.c.items() if s.medium == 'dax' or k[0] in 'TR'}
        many = [k for k, v in cells.items() if len(v) > 1]
        all_of = list(itertools.product(*(cells[k] for k in many)))
        if len(all_of) > (most or s.images_each):
            all_of = s.rng.sample(all_of, most or s.images_each)
        for some in all_of:
            t = s.copy()
            t.c = {k: v[-1:] for k, v in s.c.items()} | {k: [v] for k, v in zip(many, some)}
            if s.medium == 'cache':
                slices, length = t.cur('D')
                t.c |= {'L': [length]} | {f'P{i}': [v] for i, v in enumerate(slices)}
            t.begin()
            images.append(t)
        for t in images:
            t.c = {k: v for k, v in t.c.items() if v != [None]}
            if t.spool:
                stream, frames = t.spool
                frames = list(frames[:s.rng.randrange(len(frames) + 1)] if s.rng.random() < .4 else frames)
                if frames and s.rng.random() < .3:
                    frames[s.rng.randrange(len(frames))] = SPOILED
                t.spool = s.rng.choice([None, (stream, tuple(frames)), (stream, tuple(frames))])
        return images

    # ---- what is there ----

    def length(s):
        return s.cur('L')

    def present(s):
        return tuple(0 if s.cur(f'P{i}') == BADZ else s.cur(f'P{i}') for i in range(s.length()))

    def live(s):
        return [(k, name) for k, _, name in s.cur('T')[0]]

    def names(s):
        return [name for _, name in s.live()]

    def records(s):
        return [s.cur(k) for k in s.c if k[0] == 'R' and s.cur(k)]

    def kept(s):
        return [v for _, _, kept in s.records() for _, v in kept]

    def settled(s, i):
        if s.medium == 'cache':
            slices, length = s.cur('D')
            return slices[i] if i < length else 0
        return s.cur(f'P{i}') if i < s.length() else 0

    def read(s, k, length):
        def slice_of(i):
            found = sorted((e, dict(kept)[i]) for e, _, kept in s.records() if e >= k and i in dict(kept))
            return found[0][1] if found else s.settled(i)
        return tuple(slice_of(i) for i in range(length))

    def state(s):
        return s.present(), tuple(sorted((name, s.read(k, length)) for k, length, name in s.cur('T')[0]))

    def snapshots(s):
        return s.state()[1]

    def check_state(s, allowed, when):
        found = s.state()
        if found not in allowed or s.cur('T')[2]:
            raise Violation(f'{when}: {found}, may be {allowed}')
        s.remember()

    def remember(s):
        s.truth = {k: s.read(k, length) for k, length, _ in s.cur('T')[0]}

    def returned_to(s):
        """The states that a crash may leave between two operations."""
        slices, length = s.cur('D')
        return [s.state()] + [(slices[:length], s.snapshots())] * (s.medium == 'cache')

    def check_snapshots(s):
        for k, length, name in s.cur('T')[0]:
            if k in s.truth and s.read(k, length) != s.truth[k]:
                raise Violation(f'snapshot {k} ({name}) reads {s.read(k, length)}, was {s.truth[k]}')
            s.truth.setdefault(k, s.read(k, length))

    def check_done(s, op):
        if s.after is not None and s.state() != s.after:
            raise Violation(f'{op} has led to {s.state()}, not {s.after}')
        if s.after is not None and op[0] in ('import', 'resume') and s.spool is not None:
            raise Violation(f'{op} leaves {s.spool}')

    def check_leftovers(s, op):
        """After an error."""
        if s.why == 'exists':
            is_same = s.spool_before and s.spool_before[0] == op[1]
            if s.spool != (None if is_same else s.spool_before):
                raise Violation(f'{op} is refused, and leaves {s.spool} of {s.spool_before}')
        if s.why == 'engine' and (s.spool or not all(map(s.is_needed, s.records()))):
            raise Violation(f'{op} has failed, and leaves {s.spool} and {s.records()}')

    # ---- keeps ----

    def newest(s, p):
        return max((k for k, length, _ in s.set if 2 * p < length), default=0)

    def known(s, p):
        last, memo = s.newest(p), s.memo[p]
        if memo is None or memo[0] > last:
            s.memo[p] = last, frozenset(i for e, q, kept in s.records() if q == p and e >= last for i, _ in kept)
        elif memo[0] < last:
            s.memo[p] = last, frozenset()
        return s.memo[p][1]

    def append(s, e, p, kept):
        if not kept:
            return
        if s.space == 0:
            raise Expected('there is no space')
        s.space -= 1
        s.fresh += 1
        known = s.memo[p][1] if s.memo[p] and s.memo[p][0] == e else frozenset()
        yield from s.put(f'R{s.fresh}', (e, p, tuple(sorted(kept.items()))))
        if not (s.rolling_to(e) and is_('not_remembered')):
            s.memo[p] = e, known | frozenset(kept)

    def rolling_to(s, e):
        return e not in [k for k, _, _ in s.set]

    def keep(s, p, slices):
        """Keeps owed slices. The caller drains."""
        if s.newest(p):
            owed = {i: s.settled(i) for i in slices if i not in s.known(p)}
            if any(v in (BAD, BADZ) for v in owed.values()):
                return                            # nothing is kept of a damaged page
            yield from s.append(s.newest(p), p, owed)

    def keep_past(s, length):
        for p in range(2):
            past = [i for i in range(length, s.length()) if PAGE[i] == p and s.settled(i) != 0]
            if s.newest(p) and any(i not in s.known(p) for i in past):
                s.verify(p)
            yield from s.keep(p, past)
        s.drain()

    def verify(s, p):
        if any(s.cur(f'P{i}') in (BAD, BADZ) for i in range(s.length()) if PAGE[i] == p):
            raise Expected('a page is damaged')

    def spoil(s, i, kind=BAD):
        s.c[f'P{i}'] = [kind]
        if s.medium == 'cache':
            slices, length = s.cur('D')
            s.c['D'] = [(slices[:i] + (kind,) + slices[i + 1:], length)]

    def is_needed(s, record):
        e, p, kept = record
        for i, _ in kept:
            older = max((f for f, q, of in s.records() if q == p and f < e and i in dict(of)), default=0)
            if any(older < k <= e for k, _, _ in s.cur('T')[0]):
                return True
        return False

    def collect(s):
        """Frees records. A crash may bring them back: they are facts."""
        for k in [k for k in s.c if k[0] == 'R' and s.cur(k) and not s.is_needed(s.cur(k))]:
            s.c[k].append(None)
            s.touched.add(k)

    # ---- operations ----

    def may(s, after):
        """Notes the states that a crash may leave."""
        before = s.state()
        s.after, s.touched = after, set()
        s.allowed = [before, after]
        if s.medium == 'cache':
            slices, length = s.cur('D')
            s.allowed.append((slices[:length], before[1]))
            if after[0] == before[0]:
                s.allowed.append((slices[:length], after[1]))

    def write(s, i, v):
        present = s.present()
        if i >= s.length():
            return
        s.may((present[:i] + (v,) + present[i + 1:], s.snapshots()))
        if s.medium == 'dax':
            yield from s.keep(PAGE[i], [i])
            s.drain()
        yield from s.put(f'P{i}', v)
        s.drain()

    def set_len(s, length):
        present = s.present()
        s.may(((present + (0,) * 4)[:length] if length > len(present) else present[:length], s.snapshots()))
        if s.medium == 'dax' and length < s.length():
            yield from s.keep_past(length)
        yield from s.change_length(length)

    def change_length(s, length):
        old = s.length()
        yield from s.put('L', length)
        s.drain()
        if s.medium == 'cache' and length < old:
            yield from s.make_point()
        for i in range(length, old):
            yield from s.put(f'P{i}', 0)
        s.drain()

    def make_point(s):
        """Keeps what the point changes, syncs the store, and writes the record."""
        if s.medium == 'dax':
            return
        working = content(s.present())
        for p in range(2):
            yield from s.keep(p, [i for i in range(4) if PAGE[i] == p and working[i] != s.settled(i)])
        s.settle()
        s.c['D'] = [(tuple(s.cur(f'P{i}') if i < s.length() else 0 for i in range(4)), s.length())]
        yield

    def point(s):
        s.may(s.state())
        yield from s.make_point()

    def table(s, entries=None, highest=None, rollback=None, drains=True):
        now = s.cur('T')
        new = tuple(o if n is None else n for o, n in zip(now, (entries, highest, rollback)))
        yield from s.put('T', new)
        if drains:
            s.settle()

    def seal(s):
        s.fresh += 1
        name, (entries, highest, _) = f's{s.fresh}', s.cur('T')
        s.may((s.present(), tuple(sorted([*s.snapshots(), (name, s.present())]))))
        yield from s.make_point()
        number = highest + 1
        yield from s.table((*entries, (number, s.length(), name)), number)
        s.set = s.cur('T')[0]
        if s.read(number, s.length()) != s.present():
            raise Violation(f'snapshot {number} was sealed as {s.present()}, reads {s.read(number, s.length())}')
        s.truth[number] = s.present()

    def drop(s, number):
        entries = tuple(entry for entry in s.cur('T')[0] if entry[0] != number)
        gone = [name for k, name in s.live() if k == number]
        s.may((s.present(), tuple(x for x in s.snapshots() if x[0] not in gone)))
        yield from s.table(entries)
        s.set = entries
        s.truth.pop(number, None)
        s.collect()

    # ---- the spool ----

    def progress(s):
        """The frames of the spool that are whole."""
        if not s.spool:
            return 0
        frames = s.spool[1]
        if is_('progress_by_length'):
            return len([f for f in frames if f != 'end'])
        return next((n for n, f in enumerate(frames) if f in (SPOILED, 'end')), len(frames))

    def receive(s, stream, first, upto):
        s.spool_before, s.why = s.spool, 'received'
        if stream.name in s.names():
            s.why = 'exists'
            of_it = s.spool and (s.spool[0] == stream or is_('leftover_of_any'))
            if of_it and not is_('leftover_stays'):
                s.spool = None
            raise Expected('it is there')
        is_of_it = s.spool is not None and (s.spool[0] == stream or is_('other_stream'))
        if first > (s.progress() if is_of_it else 0) and not is_('gap'):
            raise Expected('frames are missing')
        frames = list(s.spool[1][:first]) if s.spool and first else []
        for frame in [None, *stream.frames[first:upto], *(['end'] if upto > len(stream.frames) else [])]:
            frames += [] if frame is None else [frame]
            s.spool = stream, tuple(frames)
            yield

    def transfer(s, stream, first, upto):
        s.may(s.state())
        yield from s.receive(stream, first, upto)
        s.after = None

    def each_frame(s):
        """The changes of the spool, and then what they lead to."""
        stream, frames = s.spool
        for n, frame in enumerate(frames):
            if frame == 'end':
                if n != len(stream.frames):
                    raise Expected('the count is wrong')
                yield None, stream.sum
                return
            if frame == SPOILED:
                if is_('spool_unchecked'):
                    yield 0, ((0, 55),)
                    continue
                raise Expected('a frame is damaged')
            if frame[0] != n and not is_('gap'):
                raise Expected('a frame is not in its place')
            yield frame[1], frame[2]
        if not is_('cut_taken'):
            raise Expected('it ends too early')

    # ---- imports ----

    def resume(s, stream, first):
        yield from s.take(stream, True, 99, first)

    def take(s, stream, replaces, space, first=0):
        # A stream may be cut off on its way: a receiver sees that by the last frame.
        after = stream.to, tuple(sorted([*s.snapshots(), (stream.name, stream.to)]))
        s.may(after)
        cut = is_('cut_taken') and s.rng.random() < .5
        yield from s.receive(stream, first, len(stream.frames) + (-1 if cut else 1))
        s.space, s.why = space, 'engine'
        try:
            yield from s.take_received(stream, replaces)
        except Expected:
            if not s.poisoned and not is_('not_collected'):
                s.collect()
            if not is_('spool_stays'):
                s.spool = None
            s.space = 99
            raise
        if not is_('spool_stays'):
            s.spool = None
        s.space = 99
        yield

    def check_base(s, stream, replaces):
        if stream.base is None:
            if s.length() and not replaces:
                raise Expected('it is not empty')
            return (0,) * 4
        found = s.present() if not is_('base_without_len') else content(s.present())
        base = stream.base if not is_('base_without_len') else content(stream.base)
        if found != base and not is_('any_base'):
            raise Expected('it is another base')
        return content(stream.base)

    def take_received(s, stream, replaces):
        is_whole, length = stream.base is None, len(stream.to)
        total = None
        if is_('base_before_gate'):
            total = s.check_base(stream, replaces)
            if s.length():
                yield from s.keep(PAGE[s.length() - 1], [s.length() - 1])
                s.drain()
                yield from s.put(f'P{s.length() - 1}', 177)
                s.drain()
        # Step 1.
        highest = s.cur('T')[1]
        number = highest + (2 if is_('number_taken_twice') else 1)
        if not is_('number_not_given'):
            yield from s.table(highest=number, drains=not is_('number_undrained'))
        yield from s.make_point()
        # Step 2. Writers do not change anything from here on.
        yield from s.make_point()
        total = s.check_base(stream, replaces) if total is None else total
        try:
            yield from s.prepare(stream, total)
            if not is_('cuts_unkept'):
                yield from s.keep_past(length)
            if not is_('keeps_undrained'):
                s.settle()
            if is_('said_early'):
                yield from s.say(stream, number)
            if s.may_rot and s.rng.random() < .05:
                # The spool is damaged behind the first look.
                of, frames = s.spool
                at = s.rng.randrange(len(frames))
                s.spool = of, frames[:at] + (SPOILED,) + frames[at + 1:]
            # Step 4.
            received = set()
            for p, changes in s.each_frame():
                if p is not None:
                    received.add(p)
                    yield from s.append(number, p, dict(changes))
            for p in pages_of(min(length, s.length())):
                slices = [i for i in range(4) if PAGE[i] == p]
                if is_whole and p not in received and any(x for x in content(s.present())[2 * p:2 * p + 2]) \
                        and not is_('zeros_not_received'):
                    yield from s.append(number, p, dict.fromkeys(slices, 0))
        except Expected:
            if is_('number_back'):
                yield from s.table(highest=highest)
            raise
        if not is_('records_undrained'):
            s.settle()
        # Step 5.
        yield from s.say(stream, number)
        s.truth[number] = stream.to
        if is_('spool_removed_early'):
            s.spool = None
        # Step 6.
        try:
            yield from s.restore(number, length)
        except Expected:
            s.poisoned = True
            raise

    def say(s, stream, number):
        entries = tuple(entry for entry in s.cur('T')[0] if entry[0] != number)
        entries = *entries, (number, len(stream.to), stream.name)
        if is_('two_tables'):
            yield from s.table(entries, number)
        yield from s.table(entries, number, 0 if is_('not_said') else number, drains=not is_('table_undrained'))
        s.set = entries

    def prepare(s, stream, total):
        """Step 3."""
        is_whole, length = stream.base is None, len(stream.to)
        if length < s.length() and not is_('cuts_damage'):
            for p in range(length // 2, 2):
                s.verify(p)
        stated, total = None, list(total)
        for p, changes in s.each_frame():
            if p is None:
                stated = changes
                continue
            slices = [i for i in range(4) if PAGE[i] == p] if is_whole else [i for i, _ in changes]
            yield from s.prepare_page(p, slices)
            for i, v in changes:
                total[i] = v
        for p in range(2):
            of_page = content(s.present())[2 * p:2 * p + 2]
            if is_whole and any(of_page) and 2 * p < length:
                yield from s.prepare_page(p, [2 * p, 2 * p + 1])
            elif not is_whole and 2 * p >= length:
                total[2 * p:2 * p + 2] = [0, 0]
        if stated is not None and tuple(total) != stated and not is_('any_result'):
            raise Expected('the changes lead to another content')

    def prepare_page(s, p, slices):
        is_past = 2 * p >= s.length()
        if not is_past and not is_('over_damage'):
            s.verify(p)
        if is_('keeps_nothing'):
            return
        if not is_past:
            yield from s.keep(p, slices)
        elif s.newest(p) and not is_('keeps_no_zeros'):
            yield from s.append(s.newest(p), p, {i: 0 for i in slices if i not in s.known(p)})
        if not is_('keeps_drained_at_once') and not is_('keeps_undrained'):
            s.drain()

    def restore(s, number, length):
        """Step 6. An opening finishes an import with it."""
        old = s.length()
        if length < old:
            yield from s.keep_past(length)
        for p in pages_of(length):
            to = {}
            for e, q, kept in sorted(s.records(), key=lambda record: -record[0]):
                if q == p and e >= number:
                    to |= dict(kept)
            if not to:
                continue
            if s.medium == 'dax':
                yield from s.keep(p, to)
            s.drain()
            for i, v in to.items():
                yield from s.put(f'P{i}', v)
        if not is_('restored_undrained'):
            s.drain()
        if length % 2 and length < old:
            s.verify(length // 2)                 # the page that is cut gets a new sum
        if is_('length_stays') and not s.allowed:
            length = old
        if length < old:
            yield from s.change_length(length)
        else:
            yield from s.put('L', length)
            if not is_('restored_undrained'):
                s.drain()
                yield from s.make_point()
        yield from s.table(rollback=0, drains=not is_('end_undrained'))

    # ---- openings ----

    def open(s):
        s.begin()
        s.settle()
        for k in list(s.c):
            if k[0] in 'TR' or s.medium == 'dax':
                s.c[k] = s.c[k][-1:]
        if not s.cur('T')[0]:
            s.c = {k: v for k, v in s.c.items() if k[0] != 'R'} | {'T': [((), 0, 0)]}
            s.set = ()
        for i in range(s.length(), 4):
            yield from s.put(f'P{i}', 0)
        s.drain()
        # After a death on `cache`, a point of the working state.
        yield from s.make_point()
        entries, _, rollback = s.cur('T')
        target = [length for k, length, _ in entries if k == rollback]
        if target and not is_('not_finished'):
            yield from s.restore(rollback, target[0])
        elif rollback:
            yield from s.table(rollback=0)
        s.touched = set()

    def open_at_once(s):
        for _ in s.open():
            pass
