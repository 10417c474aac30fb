#!/usr/bin/env python3
"""Brute-force check of the commit rules as the engine refines them (see README.md here; shared/DESIGN.md section 3 is the base).

Memory: the chunk model. A chunk keeps every value stored since its durable lower bound. A flush by thread t marks the chunk's
CURRENT value, whoever stored it; a drain by t raises the lower bound to what t has marked. A crash image takes one of the kept
values of each chunk, independently.
Geometry: slices 0,1 = page A (word WA), slice 2 = page B (word WB); slots H and R; two threads; a lane has two redo entry
positions and one area that holds an undo entry or a data entry. Each slice's value is one chunk, a distinct version number.

Operations are lists of micro steps (store, flush, drain, CAS, record, lock), made at the step `P` after the locks are taken.
Crash images are checked before every drain and after every acknowledgement: between those points the sets of kept values and the
set of allowed states only grow, so this covers a crash at every step.

Parts: seq    all sequences of DEPTH operations, one at a time, with state de-duplication up to renaming of versions
       page3  the same with all three slices on page A: entries of one lane that overlap in part
       inter  two threads, fixed programs chosen for the races, ALL interleavings (state de-duplication)
       pairs  one operation on page A beside one on page B after every sequence of up to 3 operations, ALL interleavings
       rand   two threads, random programs and random schedules, seeded
       recov  a crash in recovery, then recovery again: closed under any number of crashes
Usage: engine_commit.py [DEPTH=3] [MUTANT=none] [--rand N] [--part seq|page3|inter|pairs|rand|recov]
       engine_commit.py --all       none, the variants and every mutant; exit status 1 if one has a wrong outcome
"""
import itertools, random, sys, time

# mutants that must be caught, with what they break
MUTANTS = {
 'zero_clear': 'a clear stores 0 instead of a tombstone with the sequence number (the rule as first written)',
 'ignore_tombstone': 'recovery replays an entry older than the tombstone of its lane',
 'no_settle_other_lane': 'entries of another lane are cleared without settling their still valid slots',
 'own_lane_no_settle': 'own entries: the deferred flush in the same drain as the clear is taken to be enough',
 'no_clear': 'live entries that name a written slot are not cleared',
 'clear_without_flush_on_cas_fail': 'the line is flushed only if the compare-and-swap succeeded',
 'clear_no_flush': 'the cleared header is not flushed',
 'record_changed_before_drain': 'the DRAM record is replaced before the drain of the new entry',
 'no_deferred_flush': 'in-place stores are never flushed',
 'deferred_dropped': 'flip/multi/data redo forget the deferred flush instead of issuing or keeping it',
 'redo_over_other_lane_live': 'a redo goes in place although an entry of another lane names the slot',
 'one_entry_position': 'every redo uses position 0',
 'shared_seq': 'multi and data redo take a number from the counter that picks the redo position',
 'redo_no_checksum': 'a redo entry counts as valid by its header alone',
 'undo_no_checksum': 'an undo entry counts as valid by its header alone',
 'data_no_checksum': 'a data entry counts as valid by its header alone',
 'multi_no_retire_drain': 'multi returns before its retirement is drained',
 'dredo_no_settle': 'data redo clears entries that name its targets without settling',
 'dredo_no_clear': 'data redo does not clear entries that name its targets',
 'dredo_no_retire_drain': 'data redo returns before its retirement is drained',
 'dredo_before_redo': 'recovery replays data entries before redo entries',
 'flip_late_clear': 'flip clears entries in its second drain, with the word',
 'flip_no_data_drain': 'flip stores the word without draining the data',
 'recovery_retire_at_once': 'recovery clears all entries in one drain',
 'recovery_data_with_redo': 'recovery clears data entries in the same drain as the newer redo entries',
 'recovery_retire_undrained': 'recovery clears entries without draining what it applied',
}
# changes that are expected to be harmless
EQUIVALENT = {
 'replay_into_invalid_slot': 'replay does not look at the words: a named slot is cleared before it can become valid',
 'deferred_kept': 'flip/multi/data redo do not issue the deferred flush but keep it for the next redo (own settling then flushes explicitly)',
 'multi_late_clear': 'multi: settling flush in its first drain, clear in its second: no extra drain',
 'dredo_late_clear': 'data redo: settling flush in its commit drain, clear in its second: no extra drain',
 'late_clear': 'both of the above',
 'own_always_settle': 'own lane settles even where the deferred flush is already drained',
 'older_first': 'clear stores 0; an older entry of the lane sharing a still valid slot is cleared in an extra drain before',
 'stale_records': 'the record of a cleared entry is left until its owner reuses the position',
}
MUT = 'none'
WA, WB = 6, 7
SLOT = lambda i, r: 3*r+i
HD = lambda t, e: 8+12*t+4*e      # header, then three payload chunks
AR = lambda t: 8+12*t+8           # undo/data area: header, then three body chunks
V0 = 100                       # versions are >= V0, so that they are told from words
PRIVATE = frozenset(c for t in (0,1) for c in [HD(t,e)+k for e in (0,1) for k in (1,2,3)]+list(range(AR(t),AR(t)+4)))
WORD = ((WA,0),(WA,1),(WB,0))
PAGE = (0,0,1)
def geometry(pages):
    """2: slices 0,1 on page A and 2 on page B. 1: all three slices on page A."""
    global WORD, PAGE
    WORD = ((WA,0),(WA,1),(WB,0)) if pages == 2 else ((WA,0),(WA,1),(WA,2)); PAGE = (0,0,1) if pages == 2 else (0,0,0)
LATE_M = LATE_D = False

class St:
    __slots__ = ('mem','seq','rec','deferred','lock','plan','pc','infl','base','ver','prog')
    def __init__(s):
        s.mem = [((V0,0),)]*6 + [((0,0),)]*2
        for t in (0,1):
            s.mem += [((None,0),),((0,0),),((0,0),),((0,0),)]*3
        s.seq = [0,0]; s.rec = [None]*4; s.deferred = [(),()]; s.lock = [-1,-1]
        s.plan = [(),()]; s.pc = [0,0]; s.infl = [None,None]; s.base = (V0,V0,V0); s.ver = V0; s.prog = [0,0]
    def clone(s):
        n = St.__new__(St)
        n.mem = s.mem[:]; n.seq = s.seq[:]; n.rec = s.rec[:]; n.deferred = s.deferred[:]; n.lock = s.lock[:]
        n.plan = s.plan[:]; n.pc = s.pc[:]; n.infl = s.infl[:]; n.base = s.base; n.ver = s.ver; n.prog = s.prog[:]
        return n
    def key(s):
        return (tuple(s.mem),tuple(s.seq),tuple(s.rec),tuple(s.deferred),tuple(s.lock),tuple(s.plan),tuple(s.pc),tuple(s.infl),s.base,tuple(s.prog))
    def cur(s, c): return s.mem[c][-1][0]
    def bit(s, i): w,b = WORD[i]; return s.cur(w)>>b&1
    def valid(s, x): return s.bit(x%3) == x//3

# ---- operations -> micro steps -------------------------------------------------------------------------------------------
def begin(s, t, op):
    """op = (kind, slices). Lock steps, then the plan step."""
    pages = sorted({PAGE[i] for i in op[1]})
    s.plan[t] = tuple(('LK',p) for p in pages)+(('P',op),); s.pc[t] = 0

def entries_naming(s, targets):
    out = []
    for L in (0,1):
        for e in (0,1):
            r = s.rec[2*L+e]
            if r and any(x in r[0] for x in targets): out.append((L,e,r))
    return out

def settle_lines(s, t, ents, no_settle):
    lines = []
    for L,e,r in ents:
        still = [x for x in r[0] if s.valid(x)]
        if no_settle: continue
        if L != t:
            if MUT != 'no_settle_other_lane': lines += still
        elif MUT == 'own_lane_no_settle': pass
        elif MUT == 'own_always_settle' or any(x in s.deferred[t] for x in still): lines += still
    return list(dict.fromkeys(lines))

def clears(s, ents):
    out = []
    for L,e,r in ents:
        new = None if MUT in ('zero_clear','older_first') else ('t',r[1][1])
        out.append(('C',HD(L,e),r[1],new))
        if MUT != 'clear_no_flush': out.append(('F',HD(L,e)))
    return out
def unrecord(ents):
    return [] if MUT == 'stale_records' else [('X',2*L+e,r) for L,e,r in ents]

def older(s, ents, targets):
    """older_first: the older entry of a lane whose newer one is cleared, if they share a slot that stays valid."""
    out = []
    if MUT != 'older_first': return out
    for L,e,r in ents:
        o = s.rec[2*L+1-e]
        if o and o[1][1] < r[1][1] and any(x in r[0] and s.valid(x) for x in o[0]): out.append((L,1-e,o))
    return out

def first(s, t, ents, targets, no_settle, own_drain):
    """Deferred flush and settling. Returns steps before the first drain, and the steps that end the deferral."""
    o = []
    if MUT == 'deferred_dropped': o.append(('DF',()))
    elif MUT not in ('no_deferred_flush','deferred_kept'): o += [('F',x) for x in s.deferred[t]]
    lines = settle_lines(s,t,ents,no_settle); old = older(s,ents,targets)
    o += [('F',x) for x in lines]
    o += clears(s,old)
    if (lines and own_drain) or old: o.append(('D',)); o += unrecord(old)
    end = [] if MUT in ('deferred_kept','no_deferred_flush') else [('DF',())]
    return o, end

def plan(s, t, op):
    kind, idx = op
    s.ver += 1; v = s.ver
    s.infl[t] = tuple((i,v) for i in idx)
    if kind == 'redo':
        slots = tuple(SLOT(i,s.bit(i)) for i in idx)
        if any(L != t for L,_,_ in entries_naming(s,slots)) and MUT != 'redo_over_other_lane_live': kind = 'flip'
    if kind == 'redo':
        e = 0 if MUT == 'one_entry_position' else s.seq[t]&1
        s.seq[t] += 1
        h = ('r',s.seq[t],slots,(v,)*len(slots))
        rec = ('L',2*t+e,(slots,h)); o = []
        for k in range(len(slots)): o += [('S',HD(t,e)+1+k,v),('F',HD(t,e)+1+k)]
        o += [('S',HD(t,e),h),('F',HD(t,e))]
        if MUT != 'no_deferred_flush': o += [('F',x) for x in s.deferred[t]]
        if MUT == 'record_changed_before_drain': o.append(rec)
        o.append(('D',))
        o += [('S',x,v) for x in slots]
        o.append(('DF',slots))
        if MUT != 'record_changed_before_drain': o.append(rec)
        return o+[('A',)]
    wordvals = {}
    for i in idx:
        w,b = WORD[i]; x = wordvals.get(w,s.cur(w))
        wordvals[w] = x|1<<b if kind == 'dredo' else x^(1<<b)
    words = [y for w,x in wordvals.items() for y in (('S',w,x),('F',w))]
    a = AR(t)
    if kind == 'dredo':
        tg = [SLOT(i,1) for i in idx]
        ents = [] if MUT == 'dredo_no_clear' else entries_naming(s,tg)
        o,end = first(s,t,ents,tg,MUT=='dredo_no_settle',not LATE_D)
        for k in range(len(idx)): o += [('S',a+1+k,v),('F',a+1+k)]
        o += [('S',a,('d',idx,(v,)*len(idx))),('F',a)]
        if not LATE_D: o += clears(s,ents)
        o += [('D',)]+end
        if not LATE_D: o += unrecord(ents)
        for x in tg: o += [('S',x,v),('F',x)]
        o += words
        if LATE_D: o += clears(s,ents)
        o.append(('D',))
        if LATE_D: o += unrecord(ents)
        o += [('S',a,None),('F',a)]
        if MUT != 'dredo_no_retire_drain': o.append(('D',))
    else:
        tg = [SLOT(i,1-s.bit(i)) for i in idx]
        ents = [] if MUT == 'no_clear' else entries_naming(s,tg)
        late = LATE_M if kind == 'multi' else MUT == 'flip_late_clear'
        o,end = first(s,t,ents,tg,False,not late)
        for x in tg: o += [('S',x,v),('F',x)]
        if kind == 'multi':
            ws = (s.cur(WA),s.cur(WB))
            o += [('S',a+1,ws[0]),('F',a+1),('S',a+2,ws[1]),('F',a+2),('S',a,('u',ws)),('F',a)]
        if not late: o += clears(s,ents)
        if not (kind == 'flip' and MUT == 'flip_no_data_drain'): o.append(('D',))
        o += end
        if not late: o += unrecord(ents)
        o += words
        if late: o += clears(s,ents)
        o.append(('D',))
        if late: o += unrecord(ents)
        if kind == 'multi':
            o += [('S',a,None),('F',a)]
            if MUT != 'multi_no_retire_drain': o.append(('D',))
    if MUT == 'shared_seq' and kind != 'flip': s.seq[t] += 1
    return o+[('A',)]

def step(s, t, chk):
    """One micro step of thread t. False if blocked."""
    m = s.plan[t][s.pc[t]]; k = m[0]; mem = s.mem
    if k == 'S': mem[m[1]] = mem[m[1]]+((m[2],0),)
    elif k == 'F':
        c = mem[m[1]]; v,f = c[-1]
        if len(c) > 1: mem[m[1]] = c[:-1]+((v,f|1<<t),)
    elif k == 'D':
        chk(s)
        b = 1<<t
        for i,c in enumerate(mem):
            if len(c) == 1: continue
            j = 0
            for q in range(len(c)-1,-1,-1):
                if c[q][1]&b: j = q; break
            else: continue
            mem[i] = ((c[j][0],0),)+tuple((v,f&~b) for v,f in c[j+1:])
    elif k == 'C':
        if mem[m[1]][-1][0] == m[2]: mem[m[1]] = mem[m[1]]+((m[3],0),)
        elif MUT == 'clear_without_flush_on_cas_fail': s.pc[t] += 1      # skip the flush
    elif k == 'L': s.rec[m[1]] = m[2]
    elif k == 'X':
        if s.rec[m[1]] == m[2]: s.rec[m[1]] = None
    elif k == 'DF': s.deferred[t] = m[1]
    elif k == 'LK':
        if s.lock[m[1]] not in (-1,t): return False
        s.lock[m[1]] = t
    elif k == 'P':
        s.plan[t] = tuple(plan(s,t,m[1])); s.pc[t] = 0
        return True
    elif k == 'A':
        b = list(s.base)
        for i,v in s.infl[t]: b[i] = v
        s.base = tuple(b); s.infl[t] = None
        s.lock = [-1 if x == t else x for x in s.lock]
        s.plan[t] = (); s.pc[t] = 0
        chk(s)
        return True
    s.pc[t] += 1
    return True

# ---- recovery, over all images of a state at once ------------------------------------------------------------------------
def outcomes_redo(mem, h):
    out = []
    for v,_ in mem[h]:
        if v is None: o = [None]
        elif v[0] == 't': o = [v]
        else:
            can = all(any(c[0] == x for c in mem[h+1+k]) for k,x in enumerate(v[3]))
            must = all(len(mem[h+1+k]) == 1 or all(c[0] == x for c in mem[h+1+k]) for k,x in enumerate(v[3])) and can
            if MUT == 'redo_no_checksum':
                o = [('r',v[1],v[2],p) for p in itertools.product(*([c[0] for c in mem[h+1+k]] for k in range(len(v[3]))))]
            else: o = ([v] if can else [])+([] if must else [None])
        for x in o:
            if x not in out: out.append(x)
    return out
def outcomes_area(mem, a):
    out = []
    for v,_ in mem[a]:
        if v is None: o = [None]
        else:
            want = v[-1]
            bodies = list(itertools.product(*([c[0] for c in mem[a+1+k]] for k in range(len(want)))))
            if MUT == ('undo_no_checksum' if v[0] == 'u' else 'data_no_checksum'): o = [v[:-1]+(b,) for b in bodies]
            else: o = [v if b == want else None for b in bodies]
        for x in o:
            if x not in out: out.append(x)
    return out

def replay(p, u, wa, wb, order):
    """The recovery. p: 4 redo outcomes, u: 2 area outcomes. Returns words and the list of slot stores, in order."""
    w = [wa,wb]; st = []
    for t in order:
        if u[t] and u[t][0] == 'u': w = [x if x is not None else 0 for x in u[t][1]]
    ok = lambda x: (w[PAGE[x%3]]>>WORD[x%3][1]&1) == x//3
    def data():
        for t in order:
            if u[t] and u[t][0] == 'd':
                for i,v in zip(u[t][1],u[t][2]): st.append((SLOT(i,1),v)); w[PAGE[i]] |= 1<<WORD[i][1]
    if MUT == 'dredo_before_redo': data()
    for t in order:
        es = [x for x in p[2*t:2*t+2] if x]
        dead = max((x[1] for x in es if x[0] == 't'),default=-1)
        if MUT == 'ignore_tombstone': dead = -1
        for x in sorted((x for x in es if x[0] == 'r'),key=lambda x:x[1]):
            if x[1] < dead: continue
            for y,v in zip(x[2],x[3]):
                if ok(y) or MUT == 'replay_into_invalid_slot': st.append((y,v))
    if MUT != 'dredo_before_redo': data()
    return w, st

class Found(Exception): pass
class Checker:
    def __init__(c, limit): c.seen = set(); c.states = c.images = c.bad = 0; c.limit = limit; c.first = None; c.ctx = None; c.hook = None
    def __call__(c, s):
        k = (tuple(s.mem),s.base,tuple(s.infl))
        if k in c.seen: return
        c.seen.add(k); c.states += 1
        mem = s.mem
        al = [s.base]
        for f in s.infl:
            if f:
                for b in al[:]:
                    b = list(b)
                    for i,v in f: b[i] = v
                    al.append(tuple(b))
        al = set(al)
        n = 1
        for x in mem:
            if len(x) > 1: n *= len(set(v for v,_ in x))
        c.images += n
        P = [outcomes_redo(mem,HD(t,e)) for t in (0,1) for e in (0,1)]
        U = [outcomes_area(mem,AR(t)) for t in (0,1)]
        A = set(v for v,_ in mem[WA]); B = set(v for v,_ in mem[WB])
        both = any(x for q in P[:2]+U[:1] for x in q) and any(x for q in P[2:]+U[1:] for x in q)
        for combo in itertools.product(*P,*U,A,B):
            for order in ((0,1),(1,0)) if both else ((0,1),):
                w,st = replay(combo[:4],combo[4:6],combo[6],combo[7],order)
                d = dict(st); vals = []
                for i in (0,1,2):
                    x = SLOT(i,w[PAGE[i]]>>WORD[i][1]&1)
                    vals.append((d[x],) if x in d else tuple(set(v for v,_ in mem[x])))
                for r in itertools.product(*vals):
                    if r not in al:
                        c.bad += 1
                        if c.first is None: c.first = f'{c.ctx}: entries {combo[:6]} words {combo[6:]} order {order} got {r} want {sorted(al)}'
                        if c.bad >= c.limit: raise Found
        if c.hook: c.hook(s, al)

# ---- part seq ------------------------------------------------------------------------------------------------------------
SEQ_KINDS = [(k,x) for k,xs in (('redo',((0,),(1,),(0,1),(2,))),('flip',((0,),(0,1))),('multi',((0,2),(0,1,2))),('dredo',((0,),(0,1),(0,2)))) for x in xs]
PAGE3_KINDS = [(k,x) for k,xs in (('redo',((0,),(1,),(0,1),(1,2),(0,1,2))),('flip',((0,),(1,),(0,2))),('multi',((0,1),)),('dredo',((1,),(0,1)))) for x in xs]
def canon(s):
    names = {}
    def rn(x, off):
        if isinstance(x,int): return names.setdefault(x,V0+len(names)) if x >= V0 else x
        if isinstance(x,tuple):
            if x and x[0] in ('r','t'): return (x[0],x[1]-off)+tuple(rn(y,off) for y in x[2:])
            return tuple(rn(y,off) for y in x)
        return x
    out = [tuple((rn(v,0),f) for v,f in c) for c in s.mem[:8]]
    for t in (0,1):
        for q in (0,1):
            e = (s.seq[t]+q)&1
            for c in range(HD(t,e),HD(t,e)+4): out.append(tuple((rn(v,s.seq[t]),f) for v,f in s.mem[c]))
            out.append(rn(s.rec[2*t+e],s.seq[t]))
        for c in range(AR(t),AR(t)+4): out.append(tuple((rn(v,0),f) for v,f in s.mem[c]))
        out.append(s.deferred[t])
    out.append(rn(s.base,0))
    return tuple(out)

def run_op(s, t, op, chk):
    begin(s,t,op)
    while s.plan[t]: step(s,t,chk)

def part_page3(depth, chk):
    geometry(1)
    try: return part_seq(depth,chk,PAGE3_KINDS)
    finally: geometry(2)

def part_seq(depth, chk, kinds=SEQ_KINDS, collect=None):
    level = [(St(),())]; seen = set(); ops = 0
    for d in range(depth):
        nxt = []
        for s,h in level:
            for t in ((0,) if d == 0 else (0,1)):       # threads are symmetric
                for op in kinds:
                    n = s.clone(); chk.ctx = h+((t,)+op,); chk.seen.clear()
                    ops += 1
                    run_op(n,t,op,chk)
                    if d+1 < depth or collect is not None:
                        k = canon(n)
                        if k not in seen: seen.add(k); nxt.append((n,chk.ctx))
        level = nxt
        if collect is not None: collect += nxt
    return f'{ops} operations'

# ---- part inter: all interleavings of fixed programs ---------------------------------------------------------------------
r0,r1,r01,r2 = (('redo',x) for x in ((0,),(1,),(0,1),(2,)))
f0,f01,f2 = (('flip',x) for x in ((0,),(0,1),(2,)))
m02,m012 = ('multi',(0,2)),('multi',(0,1,2))
d0,d01,d02,d2 = (('dredo',x) for x in ((0,),(0,1),(0,2),(2,)))
# (sequential prefix of (thread, op)), thread 0's program, thread 1's program
PROGRAMS = [
 (((0,r0),(0,r2),(1,f0)), (r2,r2), (f0,r0)),            # owner overwrites a position while it is being cleared
 (((0,r01),(0,r2),(1,f0)), (r2,r2), (f0,f0)),
 (((0,r01),(1,f0)), (r2,r2), (f0,r01)),                 # settled while its owner goes on
 (((0,r1),(0,r01),(1,f0)), (r2,r2), (f0,r1)),           # older entry below the cleared one
 (((1,f0),(0,r0),(0,r2)), (r2,r2), (d0,r0)),            # data redo over a live entry
 (((1,f01),(0,r01)), (r2,f2), (d0,f0)),
 (((0,r01),(1,f0)), (r2,m02), (f0,d2)),
 (((0,r0),(1,r2)), (f0,f0), (f2,r2)),
 (((0,r0),(1,r2)), (f2,r0), (f0,r2)),
 (((0,r01),(1,r2),(0,f0)), (f0,r2), (f2,r0)),
 (((0,r01),(1,m012)), (r2,r01), (f0,m02)),
 (((0,d02),(1,r0),(1,r2)), (d0,r0), (r2,f2)),
 ((), (r0,r2,r2), (f0,f0)),
 ((), (r01,r2), (f0,f0)),
 ((), (f0,r01,r2), (d0,r2)),
 ((), (r0,m02), (r2,r0)),
]
def advance(s, t, progs, chk):
    """Start the next operation if idle; then private stores and flushes together with the next shared step."""
    if not s.plan[t]:
        if s.prog[t] >= len(progs[t]): return False
        op = progs[t][s.prog[t]]; s.prog[t] += 1
        begin(s,t,op)
    while True:
        m = s.plan[t][s.pc[t]]
        if not step(s,t,chk): return False
        if not (m[0] in 'SF' and m[1] in PRIVATE): return True

def part_inter(chk):
    total = 0
    for n,(prefix,p0,p1) in enumerate(PROGRAMS):
        s = St(); chk.ctx = ('program',n,prefix,p0,p1); chk.seen.clear()
        for t,op in prefix: run_op(s,t,op,chk)
        total += interleave(s,(p0,p1),chk)
    return f'{len(PROGRAMS)} programs, {total} states'

def interleave(s, progs, chk):
    seen = {s.key()}; stack = [s]
    while stack:
        s = stack.pop()
        for t in (0,1):
            c = s.clone()
            if advance(c,t,progs,chk):
                k = c.key()
                if k not in seen: seen.add(k); stack.append(c)
    return len(seen)

def part_pairs(depth, chk):
    """After every sequence of DEPTH operations (up to renaming): one operation on page A beside one on page B, all interleavings."""
    states = []; part_seq(depth,Checker(chk.limit),SEQ_KINDS,states); total = n = 0
    for s,h in states:
        for t in (0,1):
            for a,b in itertools.product((f0,f01,r01,d0),(r2,) if len(h) > 2 else (r2,f2,d2)):
                c = s.clone(); c.prog = [0,0]; chk.seen.clear(); chk.ctx = (h,(t,)+a,(1-t,)+b)
                total += interleave(c,((a,),(b,)) if t == 0 else ((b,),(a,)),chk); n += 1
    return f'{len(states)} start states, {n} pairs, {total} states'

# ---- part rand -----------------------------------------------------------------------------------------------------------
RAND_KINDS = [r0,r1,r01,r2,r0,r01,r2,r2,f0,('flip',(1,)),f01,f2,f0,f2,m02,m012,d0,d01,d2,d02]
def part_rand(n, chk, seed=1):
    rng = random.Random(seed)
    for i in range(n):
        s = St(); chk.seen.clear(); pre = []
        for _ in range(rng.randrange(4)):
            t,op = rng.randrange(2),rng.choice(RAND_KINDS); pre.append((t,op)); run_op(s,t,op,chk)
        progs = tuple(tuple(rng.choice(RAND_KINDS) for _ in range(3)) for _ in (0,1))
        chk.ctx = ('random',i,pre,progs)
        live = [0,1]; stick = rng.choice((0.5,0.8,0.95)); t = rng.randrange(2)
        while True:
            can = [q for q in (0,1) if s.plan[q] or s.prog[q] < len(progs[q])]
            if not can: break
            if t not in can or rng.random() > stick: t = rng.choice(can)
            if not s.plan[t]: begin(s,t,progs[t][s.prog[t]]); s.prog[t] += 1
            if not step(s,t,chk): t = 1-t
    return f'{n} schedules'

# ---- part recov: crashes in recovery -------------------------------------------------------------------------------------
def parse(img):
    P,U = [],[]
    one = [((v,0),) for v in img]
    for t in (0,1):
        for e in (0,1): P.append(outcomes_redo(one,HD(t,e))[0])
        U.append(outcomes_area(one,AR(t))[0])
    return P,U
def recover_phases(img, order):
    """Phases of (chunk, value) stores, a flush and a drain after each."""
    P,U = parse(img); w,st = replay(P,U,img[WA],img[WB],order)
    apply = []
    for t in order:                                           # the words as the undo entries leave them, then as the data entries do
        if U[t] and U[t][0] == 'u': apply += [(WA,U[t][1][0]),(WB,U[t][1][1])]
    apply += st+[(WA,w[0]),(WB,w[1])]
    old,new,area = [],[],[]
    for t in (0,1):
        sq = [x[1] if x else -1 for x in P[2*t:2*t+2]]
        for e in (0,1):
            if img[HD(t,e)] is not None: (old if sq[e] < sq[1-e] or sq[e] < 0 else new).append((HD(t,e),None))
        if img[AR(t)] is not None: area.append((AR(t),None))
    if MUT == 'recovery_retire_at_once': return [apply,old+new+area]
    if MUT == 'recovery_data_with_redo': return [apply,old,new+area]
    if MUT == 'recovery_retire_undrained': return [apply+old,new,area]
    return [apply,old,new,area]
def recovered(img, order):
    P,U = parse(img); w,st = replay(P,U,img[WA],img[WB],order); m = list(img)
    for x,v in st: m[x] = v
    return tuple(m[SLOT(i,w[PAGE[i]]>>WORD[i][1]&1)] for i in (0,1,2))

class Recov:
    def __init__(r, chk, rng, share): r.memo = {}; r.chk = chk; r.rng = rng; r.share = share; r.edges = 0
    def hook(r, s, al):
        if r.share < 1 and r.rng.random() > r.share: return
        cs = [list(dict.fromkeys(v for v,_ in c)) for c in s.mem]
        n = 1
        for c in cs: n *= len(c)
        imgs = itertools.product(*cs) if n <= 64 else (tuple(r.rng.choice(c) for c in cs) for _ in range(64))
        for img in imgs: r.closure(img)
    def closure(r, img):
        """Every image a crash in recovery can leave recovers to the same state: with the memo, for any number of crashes."""
        todo = [img]
        while todo:
            img = todo.pop()
            if img in r.memo: continue
            res = recovered(img,(0,1)); r.memo[img] = res
            if recovered(img,(1,0)) != res: r.fail(img,img)
            for order in (0,1),(1,0):
                base = list(img)
                for ph in recover_phases(img,order):
                    c = {}
                    for x,v in ph: c.setdefault(x,[base[x]]); c[x].append(v)
                    c = {x:list(dict.fromkeys(v)) for x,v in c.items()}
                    c2 = {x:v for x,v in c.items() if len(v) > 1}
                    for combo in itertools.product(*c2.values()):
                        m = base[:]
                        for x,v in zip(c2,combo): m[x] = v
                        m = tuple(m); r.edges += 1
                        if recovered(m,(0,1)) != res or recovered(m,(1,0)) != res: r.fail(img,m)
                        if m not in r.memo: todo.append(m)
                    for x,v in ph: base[x] = v
    def fail(r, a, b):
        r.chk.bad += 1
        if r.chk.first is None: r.chk.first = f'{r.chk.ctx}: recovery of {a} interrupted at {b}: {recovered(a,(0,1))} became {recovered(b,(0,1))}/{recovered(b,(1,0))}'
        if r.chk.bad >= r.chk.limit: raise Found

def part_recov(depth, chk, share, rnd):
    r = Recov(chk,random.Random(7),share); chk.hook = r.hook
    try:
        part_seq(depth,chk)
        r.share = 0.05; part_rand(rnd,chk,seed=2)
    finally: chk.hook = None
    return f'{len(r.memo)} start images, {r.edges} interrupted recoveries'

# ---- command line --------------------------------------------------------------------------------------------------------
def run(mut, depth, rnd, parts=('seq','page3','inter','rand','recov'), limit=10**9, verbose=False):
    global MUT, LATE_M, LATE_D
    MUT = mut; LATE_M = mut in ('multi_late_clear','late_clear'); LATE_D = mut in ('dredo_late_clear','late_clear')
    lines = []; caught = []; tot = [0,0,0]; firsts = []; t00 = time.time()
    for p in parts:
        chk = Checker(limit); t0 = time.time(); info = 'stopped'
        try:
            info = {'seq':lambda:part_seq(depth,chk),'page3':lambda:part_page3(depth,chk),'inter':lambda:part_inter(chk),'pairs':lambda:part_pairs(min(depth,3),chk),'rand':lambda:part_rand(rnd,chk),
                    'recov':lambda:part_recov(min(depth,3),chk,0.1,rnd//20)}[p]()
        except Found: pass
        lines.append(f'  {p:5} {info}: {chk.states} crash states, {chk.images} crash images, {chk.bad} violations, {time.time()-t0:.1f} s')
        tot[0] += chk.states; tot[1] += chk.images; tot[2] += chk.bad
        if chk.bad: caught.append(p); firsts.append(f'  first ({p}): {chk.first}')
        if chk.bad and limit < 10**9: break
    return mut, tot, caught, lines, firsts, time.time()-t00

def job(a): return run(*a)
def main():
    a = sys.argv[1:]
    if '--all' in a:
        import multiprocessing as mp
        jobs = [('none',4,20000)]+[(m,3,1500) for m in EQUIVALENT]+[(m,4,20000,('seq','page3','inter','rand','recov'),1) for m in MUTANTS]
        # none in parts, so that both cores have work
        jobs[0:1] = [('none',4,20000,(p,)) for p in ('pairs','seq','page3','rand','recov','inter')]
        wrong = 0; t0 = time.time(); none = [0,0,0]
        with mp.Pool(2) as pool:
            for mut,tot,caught,lines,firsts,sec in pool.imap(job,jobs,chunksize=1):
                must = mut in MUTANTS; ok = bool(caught) == must; wrong += not ok
                if mut == 'none': print('none'+lines[0][1:],*firsts,sep='\n',flush=True); none = [x+y for x,y in zip(none,tot)]
                else: print(f'{"ok   " if ok else "WRONG"} {mut}: '+(f'caught in {caught[0]} after {tot[1]} images, at '+firsts[0].split(': ')[1] if caught else f'{tot[1]} images, 0 violations'+(' SURVIVED' if must else ' (harmless)'))+f', {sec:.1f} s',flush=True)
                if not ok: print(*firsts,sep='\n')
        print(f'none: {none[0]} crash states, {none[1]} crash images, {none[2]} violations')
        print('harmless changes (no violation, as argued in README.md):',', '.join(EQUIVALENT))
        print(f'{wrong} wrong outcomes, {time.time()-t0:.0f} s')
        sys.exit(1 if wrong else 0)
    parts = ('seq','page3','inter','rand','recov'); rnd = 2000
    if '--part' in a: i = a.index('--part'); parts = (a[i+1],); del a[i:i+2]
    if '--rand' in a: i = a.index('--rand'); rnd = int(a[i+1]); del a[i:i+2]
    depth = int(a[0]) if a else 3; mut = a[1] if len(a) > 1 else 'none'
    if mut != 'none' and mut not in MUTANTS and mut not in EQUIVALENT: sys.exit('unknown mutant; known: '+', '.join(list(MUTANTS)+list(EQUIVALENT)))
    mut,tot,caught,lines,firsts,sec = run(mut,depth,rnd,parts)
    print(*lines,*firsts,sep='\n')
    print(f'mutant {mut}: depth {depth}, {tot[0]} crash states, {tot[1]} crash images, {tot[2]} violations, {sec:.1f} s')
    sys.exit(0 if (mut in MUTANTS) == bool(tot[2]) else 1)
if __name__ == '__main__': main()
