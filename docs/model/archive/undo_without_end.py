#!/usr/bin/env python3
"""Brute-force check of undo entries that nobody ends (see README.md here). A proposal: the engine still ends its own.

Today an operation over several words takes three drains: entry and data; words; the end of the entry. Here the last one is gone.
An entry says which bits flip, and so what its words are before and after. Recovery takes it for committed if ALL its words are as
after, and takes all back otherwise. So the commit point is the drain of the words. The entry stays until its lane writes the next
one over it; whoever is about to change one of its bits makes it void first, in the drain that it takes before its word anyway.

Memory: the chunk model of engine_commit.py: a chunk keeps each value since its durable lower bound; a flush by thread t marks the
current value, whoever stored it; a drain by t raises the lower bound to what t has marked.
Geometry: slices 0, 1 on page A (word WA), 2 on page B (WB); slots H and R; two threads, a lane with one undo entry each (a header
and a body, which may arrive apart). Operations one at a time: their locks are held from clearing to publishing, and lanes share
nothing but words and the entries that name them.
Usage: undo_without_end.py [DEPTH=4] [MUTANT=none] | --all [DEPTH]
"""
import itertools, sys

MUTANTS = {
 'not_cleared': 'who changes a bit leaves entries that name it',
 'other_lane_not_cleared': 'only entries of the own lane are made void',
 'cleared_with_the_word': 'the void header shares the drain of the word, not the one before it',
 'cleared_not_flushed': 'the void header is not flushed',
 'any_word': 'one word as after is enough for committed',
 'always_back': 'an entry that was not ended is taken back, as today',
 'no_drain_before_words': 'no drain between entry and data, and the words',
 'no_drain_after_words': 'no drain after the words',
 'no_checksum': 'an entry counts by its header alone',
 'other_bits': 'recovery compares whole words, with bits of others in them',
}
MUT = 'none'
WORD = (('WA', 0), ('WA', 1), ('WB', 0))
KINDS = [('flip', x) for x in ((0,), (1,), (0, 1), (2,))] + [('multi', x) for x in ((0, 2), (1, 2), (0, 1, 2))]

class State:
    def __init__(s):
        s.mem = {c: ((0, 0),) for c in ('H0', 'H1', 'H2', 'R0', 'R1', 'R2', 'WA', 'WB')}
        for t in (0, 1): s.mem[f'h{t}'] = ((None, 0),); s.mem[f'b{t}'] = ((None, 0),)
        s.now = (0, 0, 0); s.live = [None, None]; s.seq = [0, 0]; s.version = 0
    def clone(s):
        n = State.__new__(State); n.mem = dict(s.mem); n.now = s.now; n.live = s.live[:]; n.seq = s.seq[:]; n.version = s.version
        return n
    def cur(s, c): return s.mem[c][-1][0]
    def store(s, c, v): s.mem[c] += ((v, 0),)
    def flush(s, t, c):
        v, f = s.mem[c][-1]; s.mem[c] = s.mem[c][:-1] + ((v, f | 1 << t),)
    def through(s, t, c, v): s.store(c, v); s.flush(t, c)
    def drain(s, t):
        for c, kept in s.mem.items():
            last = max((n for n, (_, f) in enumerate(kept) if f >> t & 1), default=0)
            if last: s.mem[c] = ((kept[last][0], 0),) + tuple((v, f & ~(1 << t)) for v, f in kept[last + 1:])
    def key(s):
        names = {}
        def rn(v):
            if isinstance(v, tuple): return tuple(rn(x) for x in v)
            return names.setdefault(v, len(names)) if isinstance(v, int) and v > 9 else v
        entry = lambda v, t: v if v is None else (v[0] - s.seq[t],) + v[1:]
        return (tuple((c, tuple((entry(v, int(c[1])) if c[0] in 'hb' else rn(v), f) for v, f in s.mem[c])) for c in s.mem),
                tuple(entry(e, t) for t, e in enumerate(s.live)))

def recover(image):
    """Stores that recovery makes, for an image."""
    stores = {}
    for t in (0, 1):
        header, body = image[f'h{t}'], image[f'b{t}']
        if header is None or body is None: continue
        if header[0] != body[0] and MUT != 'no_checksum': continue       # of two operations: not written whole
        moves = body[1]                                                  # (word, mask, bits before)
        word = lambda w: stores.get(w, image[w])
        if MUT == 'other_bits': after = [word(w) == (whole ^ mask) for w, mask, old, whole in moves]
        else: after = [word(w) & mask == mask & ~old for w, mask, old, whole in moves]
        done = any(after) if MUT == 'any_word' else all(after)
        if done and MUT != 'always_back': continue
        for w, mask, old, whole in moves: stores[w] = word(w) & ~mask | old
    return stores

def read(image):
    return tuple(image[('R' if image[w] >> b & 1 else 'H') + str(i)] for i, (w, b) in enumerate(WORD))

class Found(Exception): pass

class Checker:
    def __init__(c): c.images = c.states = 0; c.seen = set()
    def __call__(c, s, allowed, history):
        key = (tuple(s.mem.items()), tuple(allowed))
        if key in c.seen: return
        c.seen.add(key); c.states += 1
        chunks = list(s.mem)
        for values in itertools.product(*(dict.fromkeys(v for v, _ in s.mem[x]) for x in chunks)):
            c.images += 1
            image = dict(zip(chunks, values)); todo = [image]; tried = set()
            while todo:                                                  # closed under crashes in recovery
                image = todo.pop()
                if tuple(image.items()) in tried: continue
                tried.add(tuple(image.items()))
                stores = recover(image)
                got = read({**image, **stores})
                if got not in allowed: raise Found(f'{history}: {image} gives {got}, not {allowed}')
                for n in range(1, len(stores) + 1):
                    for some in itertools.combinations(stores.items(), n): todo.append({**image, **dict(some)})

def operate(s, t, kind, slices, check, history):
    s.version += 1; v = s.version + 100
    before, after = s.now, tuple(v if i in slices else x for i, x in enumerate(s.now))
    crash = lambda: check(s, (before, after), history)
    masks = {}
    for i in slices: w, b = WORD[i]; masks[w] = masks.get(w, 0) | 1 << b
    def clear():
        for lane in (0, 1):
            entry = s.live[lane]
            if entry is None or not any(masks.get(w, 0) & mask for w, mask, *_ in entry[1]): continue
            if MUT == 'not_cleared' or MUT == 'other_lane_not_cleared' and lane != t: continue
            if s.cur(f'h{lane}') == (entry[0],): s.store(f'h{lane}', None)
            if MUT != 'cleared_not_flushed': s.flush(t, f'h{lane}')
            s.live[lane] = None
    for i in slices:
        w, b = WORD[i]; s.through(t, ('H' if s.cur(w) >> b & 1 else 'R') + str(i), v)
    if MUT != 'cleared_with_the_word': clear()
    if kind == 'multi':
        s.seq[t] += 1
        moves = tuple((w, mask, s.cur(w) & mask, s.cur(w)) for w, mask in masks.items())
        s.through(t, f'b{t}', (s.seq[t], moves)); s.through(t, f'h{t}', (s.seq[t],))
    crash()
    if MUT != 'no_drain_before_words': s.drain(t)
    if MUT == 'cleared_with_the_word': clear()
    for w, mask in masks.items(): s.through(t, w, s.cur(w) ^ mask)
    crash()
    if MUT != 'no_drain_after_words': s.drain(t)
    if kind == 'multi': s.live[t] = (s.seq[t], moves)
    s.now = after
    check(s, (after,), history)

def run(depth):
    check = Checker(); level = [(State(), ())]; seen = set()
    try:
        for d in range(depth):
            following = []
            for s, history in level:
                for t in (0,) if d == 0 else (0, 1):                     # the threads are alike
                    for kind, slices in KINDS:
                        n = s.clone(); more = history + ((t, kind, slices),)
                        operate(n, t, kind, slices, check, more)
                        key = n.key()
                        if key not in seen: seen.add(key); following.append((n, more))
            level = following
    except Found as found: return check, str(found)
    return check, None

def main():
    global MUT
    args = sys.argv[1:]
    if args[:1] == ['--all']:
        depth = int(args[1]) if len(args) > 1 else 4; wrong = 0
        for MUT in ['none', *MUTANTS]:
            check, found = run(depth)
            wrong += (found is None) != (MUT == 'none')
            print(f'{MUT:24} {check.states:8} states {check.images:9} images  {"violation: " + found[:150] if found else "none"}')
        sys.exit(wrong != 0)
    depth = int(args[0]) if args else 4
    MUT = args[1] if len(args) > 1 else 'none'
    check, found = run(depth)
    print(f'{check.states} states, {check.images} images:', found or 'no violation')
    sys.exit((found is None) != (MUT == 'none'))

main()
