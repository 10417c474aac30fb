#!/usr/bin/env python3
"""Brute-force check of imports: rules S43 to S46 of docs/protocols/snapshots.md, and the receiver.

The file has up to four slices on two pages. Part `file` runs random and told histories of writes,
lengths, seals, drops, transfers and imports. Medium `dax`: a store is durable with the next drain;
a crash leaves of each cell any value since that. Medium `cache`: a death leaves every store. A power
loss goes back to the last durable point, and leaves of the snapshot store any value since its last
sync. At each step of an operation the model takes the images of a crash, opens them, and compares:

- the present and its snapshots are those before the operation, or those after it, all of them;
- after the next seal each snapshot still reads what was sealed;
- an opening that finishes an import dies at each of its steps, and the next one finishes it;
- the next transfer of the same stream, or of another one, works and leaves no file behind;
- an error leaves the handle usable: the damage, the lack of space, and the wrong base or result all
  come before the commit point. Space is a number of records.

The spool is a list of frames, of which nothing is durable. A loss spoils or takes any of them.

Part `receivers`: processes that make one new file of their streams, with the locks and the names
that they have. All interleavings of two, and random ones of three. Each may die at each step, or the
power goes. A file that has the name is whole, is not replaced, and has no other name.

The two copies of the table, segments, and the slots of a slice are in other models. A record counts
as a whole or not at all. A slice that is restored has one cell: an opening restores all of them.

Usage: snapshot_import.py [MUTANT]      or: snapshot_import.py --all      or: snapshot_import.py --quick
"""
import random
import sys

from snapshot_import_machine import BAD, BADZ, MUT, STATS, Expected, File, Stream, Violation
from snapshot_import_receivers import receivers

MUTANTS = {
    # the spool
    'spool_unchecked': 'frames of the spool count again without their checksums',
    'progress_by_length': 'a transfer goes on behind frames that are not whole',
    'other_stream': 'a transfer goes on behind frames of another stream',
    'gap': 'a transfer may begin behind the frames that there are',
    'cut_taken': 'a stream needs no last frame',
    'spool_stays': 'an import leaves its spool',
    'leftover_stays': 'a stream that is there already leaves what a dead process has received',
    'leftover_of_any': 'the refusal of one stream removes what was received of another one',
    # step 1
    'any_base': 'the present is compared with no base',
    'base_before_gate': 'the present is compared before the writers wait, and changes not again',
    # step 2
    'number_not_given': 'the table does not give the number before the records (S43)',
    'number_back': 'a failed import gives its number back (S43)',
    # step 3
    'keeps_nothing': 'nothing is kept of what changes (S44)',
    'keeps_undrained': 'records of the import may be durable before what was kept (S44)',
    'keeps_no_zeros': 'no zeros are kept past the end (S44)',
    'any_result': 'the changes may lead to any content (S46)',
    'over_damage': 'a damaged page is not looked at before the commit point (S46)',
    'cuts_damage': 'a damaged page that a shorter length takes is not looked at (S46)',
    'cuts_unkept': 'what a shorter length takes is kept behind the commit point (S46; as first built)',
    'not_remembered': 'a page does not remember the records of the import (S46)',
    # step 4
    'records_undrained': 'the table may be durable before the records that it names (S45)',
    'zeros_not_received': 'a whole state leaves pages that it does not have',
    'not_collected': 'a failed import leaves its records',
    # step 5
    'said_early': 'the table names the snapshot before its records are appended (S45)',
    'not_said': 'the table does not say that a rollback is under way',
    'two_tables': 'one table has the snapshot, and the next one says that a rollback is under way',
    # step 6
    'not_finished': 'an opening does not finish the rollback',
    'length_stays': 'an opening does not restore the length',
    'restored_undrained': 'the table says that the rollback is over before its stores are durable',
    'end_undrained': 'the writers go on before the table durably says that the rollback is over',
}
OF_NEW_FILES = {
    'no_lock': 'receivers of one file take no lock',
    'lock_of_removed': 'a receiver takes the lock of a file that was removed (as first built)',
    'named_unsynced': 'a new file has its name before it is durable',
    'name_replaces': 'a new file replaces one that came meanwhile',
    'linked': 'a new file gets a second name before it loses the first one (as first built)',
    'unfinished_taken': 'a new file goes on with what a crash has left',
}
HARMLESS = {
    'keeps_drained_at_once': 'all keeps are drained once, behind the last page',
    'spool_removed_early': 'the spool is removed before the end of the rollback',
    'number_taken_twice': 'an import takes two numbers',
    'table_undrained': 'the drain before the first store, or the point, orders the table as well',
    'number_undrained': 'the barrier of step 3 orders the number before the records',
    'base_without_len': 'the length of the present is not compared: zeros at the end are no change',
}


# ---- histories -----------------------------------------------------------------------------------

def states():
    """Contents of the sender. All slices that are not zero differ."""
    return [(1, 2, 3), (1, 5, 3), (1, 5, 3, 7), (1, 5), (8,), (0, 0, 9, 9), (), (1, 2, 0, 0)]


def streams():
    """Whole states, and changes between two of them."""
    for to in states():
        yield Stream(None, to)
        for base in states():
            if base != to:
                yield Stream(base, to)


ALL_STREAMS = list(streams())


def some_stream(rng, f):
    present = f.present()
    fitting = [s for s in ALL_STREAMS if s.base == present or s.base is None]
    return rng.choice(fitting if fitting and rng.random() < .8 else ALL_STREAMS)


def random_operation(rng, f):
    """One operation of the receiver, by its name and arguments."""
    kind = rng.random()
    length = f.length()
    if kind < .18 and length:
        return 'write', rng.randrange(length), 100 + rng.randrange(9)
    if kind < .26:
        return 'set_len', rng.randrange(5)
    if kind < .42:
        return 'seal',
    if kind < .50 and f.live():
        return 'drop', rng.choice([k for k, _ in f.live()])
    if kind < .56:
        return 'point',
    stream = some_stream(rng, f)
    frames = len(stream.frames)
    if kind < .66:
        return 'transfer', stream, 0, rng.randrange(frames + 1)
    if kind < .72:
        return 'resume', stream, rng.randrange(frames + 1)
    if kind < .77:
        forged = Stream(stream.base, stream.to, forged=True)
        return 'import', forged, rng.random() < .5, 99
    space = rng.choice([99, 99, 99, 0, 1, 2, 3, 4, 5, 6])
    return 'import', stream, rng.random() < .5, space


# What may be wrong with the rest of a stream, whose first frames are there.
MAY_STOP_THE_REST = ('it is there', 'frames are missing', 'it is another base', 'there is no space')

TOLD = [
    # a number whose records a crash has left, and the next seal
    [('write', 0, 101), ('import', Stream(None, (1, 2, 3)), True, 99), ('import', Stream((1, 2, 3), (1, 5, 3)), False, 99)],
    [('import', Stream(None, (1, 2, 3)), True, 99), ('import', Stream((1, 2, 3), (1, 5)), False, 99), ('seal',)],
    # zeros past the end that an older snapshot reads
    [('set_len', 4), ('seal',), ('set_len', 3), ('import', Stream(None, (1, 5, 3, 7)), True, 99)],
    [('set_len', 4), ('seal',), ('set_len', 0), ('import', Stream(None, (0, 0, 9, 9)), False, 99), ('seal',)],
    [('import', Stream(None, (1, 2, 3)), True, 99), ('seal',), ('import', Stream((1, 2, 3), (1, 5, 3, 7)), False, 99),
     ('import', Stream((1, 5, 3, 7), (1, 5)), False, 2), ('import', Stream((1, 5, 3, 7), (8,)), False, 3),
     ('import', Stream((1, 5, 3, 7), (1, 5)), False, 99)],
    # a lack of space behind the last page, and a number that comes back
    [('import', Stream(None, (1, 2, 0, 0)), True, 99), ('set_len', 2), ('import', Stream((1, 2, 0, 0), (8,)), False, 99)],
    # transfers that break and go on
    [('transfer', Stream(None, (1, 5, 3, 7)), 0, 1), ('resume', Stream(None, (1, 5, 3, 7)), 1)],
    [('transfer', Stream(None, (0, 0, 9, 9)), 0, 1), ('resume', Stream(None, (1, 5, 3, 7)), 1),
     ('resume', Stream(None, (1, 5, 3, 7)), 2)],
    [('import', Stream(None, (1, 2, 3)), True, 99), ('transfer', Stream((1, 2, 3), (8,)), 0, 1),
     ('import', Stream(None, (1, 2, 3)), True, 99), ('resume', Stream((1, 2, 3), (8,)), 1)],
    [('import', Stream(None, (1, 2, 0, 9)), True, 99), ('seal',)],
    # space for all but the bytes that a shorter length takes
    [('set_len', 4), ('write', 2, 101), ('write', 3, 102), ('seal',), ('point',), ('import', Stream(None, (8,)), True, 2)],
    # a record that is durable before the one that was kept
    [('set_len', 2), ('seal',), ('write', 0, 101), ('seal',), ('import', Stream((101, 0), (8,)), False, 99)],
    # pages that a whole state does not have
    [('import', Stream(None, (1, 2, 3)), True, 99), ('seal',), ('import', Stream(None, (0, 0, 9, 9)), True, 99)],
    # a failed import, then a seal that would get its number
    [('seal',), ('import', Stream(None, (1, 5, 3, 7)), True, 5), ('write', 0, 102), ('seal',), ('write', 1, 103)],
]


def run_part(medium, seeds, images_each):
    """Histories with crashes. Returns what was done and the violation, if there is one."""
    for seed, told in enumerate([*TOLD, *[None] * seeds]):
        rng = random.Random(f'{medium} {seed}')
        f, did = File(medium, rng), []
        f.images_each = images_each if told is None else max(images_each, 20)
        try:
            for n in range(len(told) if told else 7):
                op = told[n] if told else random_operation(rng, f)
                did.append(op)
                STATS['operations'] += 1
                image = perform(f, op, rng, told is not None)
                if image is not None:
                    did.append('crash')
                    f = image
                if told is None and rng.random() < .12:
                    spoil_and_import(f, rng)
                # The page that the new end cuts reads as zeros, and is damaged.
                if f.present() == (1, 2, 0, 9):
                    spoil_and_import(f, rng, Stream(None, (8, 8, 0)), 3)
        except Violation as violation:
            return did, violation
    return None


def perform(f, op, rng, is_told):
    """Performs an operation, and looks at a crash at each step. Returns the file of one of these crashes, or None."""
    crashes, name, args = [], op[0], op[1:]
    before = f.state()
    f.may_rot = name == 'import'
    try:
        steps = getattr(f, name.replace('import', 'take'))(*args)
        for _ in steps:
            for image in f.crashes():
                look(image, f.allowed)
                crashes.append(image)
    except Expected as why:
        if f.poisoned:
            raise Violation(f'{op}: {why}, behind the commit point') from None
        if name == 'resume' and str(why) not in MAY_STOP_THE_REST:
            raise Violation(f'{op} goes on, and then {why}') from None
        if f.state() != before:
            raise Violation(f'{op} has failed, {why}: {f.state()}, was {before}') from None
        f.check_leftovers(op)
    else:
        f.check_done(op)
        if name == 'import' and op[1].is_forged():
            raise Violation(f'{op} leads to another content')
    f.check_snapshots()
    for image in f.crashes():
        look(image, f.returned_to())
        crashes.append(image)
    if crashes and not is_told and rng.random() < .3:
        image = rng.choice(crashes).copy()
        image.open_at_once()
        image.remember()
        return image
    return None


def look(image, allowed):
    """Opens an image of a crash, and goes on with it."""
    key = image.key()
    if key in image.seen:
        return
    image.seen.add(key)
    STATS['images'] += 1
    t = image.copy()
    t.may_rot = False
    # The opening may die as well.
    for _ in t.open():
        for again in t.crashes(2):
            u = again.copy()
            u.open_at_once()
            u.check_state(allowed, 'after a crash of an opening')
    t.check_state(allowed, 'after a crash')
    # The next seal must get a number without records.
    for _ in t.seal():
        pass
    t.check_snapshots()
    if t.length():
        for _ in t.write(0, 199):
            pass
        t.check_snapshots()
    if t.spool is not None:
        check_spool(t)


def check_spool(t):
    """The stream that a dead process had received comes again, and then another one."""
    STATS['spools'] += 1
    stream = t.spool[0]
    for streams in ([stream], [Stream(None, (6, 6))]):
        u = t.copy()
        for again in streams:
            try:
                for _ in u.take(again, True, 99):
                    pass
                u.check_done(('import', again))
            except Expected:
                if u.poisoned:
                    raise Violation('an import behind a dead one poisons') from None
        is_refused = stream.name in t.names() and stream in streams
        if u.spool is not None and (is_refused or stream not in streams):
            raise Violation(f'what a dead process has received stays: {u.spool}')
    # It goes on where it broke, or is told that frames are missing.
    u = t.copy()
    whole = u.progress()
    try:
        for _ in u.resume(stream, min(whole, len(stream.frames))):
            pass
        u.check_done(('import', stream))
    except Expected as why:
        if str(why) not in MAY_STOP_THE_REST and not stream.is_forged():
            raise Violation(f'{stream} goes on behind {whole} frames, and then {why}') from None


def spoil_and_import(f, rng, stream=None, slice_=None):
    """One slice of the file is damaged. An import notices that before its commit point, or does not read it."""
    if not f.length():
        return
    t = f.copy()
    slice_ = rng.randrange(t.length()) if slice_ is None else slice_
    t.spoil(slice_, rng.choice([BAD, BADZ]) if stream is None else BADZ)
    stream = stream or some_stream(rng, f)
    if stream.name in t.names():
        return
    STATS['spoiled'] += 1
    try:
        for _ in t.take(stream, True, 99):
            pass
    except Expected as why:
        if t.poisoned:
            raise Violation(f'slice {slice_} is damaged, {why}, behind the commit point') from None
        return
    if any(x == BAD for x in t.present()) or any(x in (BAD, BADZ) for x in t.kept()):
        raise Violation(f'slice {slice_} is damaged, and {stream} was taken')
    for k, length, name in t.cur('T')[0]:
        for is_, was in zip(t.read(k, length), t.truth.get(k, ())):
            if is_ not in (was, BAD, BADZ):
                raise Violation(f'slice {slice_} is damaged, and snapshot {k} reads {is_} for {was}')


# ---- runs ----------------------------------------------------------------------------------------

def run(mutant, seeds, images_each, is_quiet=False):
    MUT[0] = mutant
    STATS.update(dict.fromkeys(STATS, 0))
    bad = 0
    for medium in ('dax', 'cache') if mutant not in OF_NEW_FILES else ():
        found = run_part(medium, seeds, images_each)
        if found:
            bad += 1
            print(f'  {medium}: {", ".join(map(str, found[0]))}: {found[1]}')
            if is_quiet:
                break
    if mutant not in MUTANTS:
        try:
            receivers()
        except Violation as violation:
            bad += 1
            print(f'  receivers: {violation}')
    print(f'{mutant}: ' + ', '.join(f'{n} {k}' for k, n in STATS.items()) + f', {bad} violations', flush=True)
    return bad


def main():
    args = sys.argv[1:]
    if args[:1] in (['--all'], ['--quick']):
        seeds, few, each = (1500, 300, 16) if args[0] == '--all' else (25, 5, 6)
        wrong = run('none', seeds, each) + sum(run(name, few, each) for name in HARMLESS)
        for name, what in (MUTANTS | OF_NEW_FILES).items():
            if not run(name, 1500, 6, True):
                wrong += 1
                print(f'  NOT FOUND: {name}: {what}')
        sys.exit(wrong != 0)
    mutant = args[0] if args else 'none'
    sys.exit((run(mutant, 600, 12) != 0) != (mutant in MUTANTS | OF_NEW_FILES))


if __name__ == '__main__':
    main()
