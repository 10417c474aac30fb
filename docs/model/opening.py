#!/usr/bin/env python3
"""Brute-force check of the barriers that open a new pair and close it spatially, on page cache.

A file's name, bytes, length, attribute and superblock are *items*. A step changes an item in the cache. A barrier
makes all items of one file, or all names of the folder, durable. At a loss of power each item has, independently, any
value that it had since the last barrier that covers it. The next opening then judges what it finds, as the pair table
does. It must never refuse. It must find the state that counts: the plain file before the first point, the point once
its record is durable, and a complete home file after the close.

Usage: opening.py [MUTANT]      or: opening.py --all
"""
import itertools
import sys

# Each item, by what makes it durable.
FILES = {
    'home': ['home_bytes', 'home_len', 'mark'],
    'refl': ['refl_bytes', 'super'],
    'journal': ['journal_bytes'],
    'record': ['record'],          # one write that waits for its own block
    'block': ['super'],            # so is the superblock of a close
    'folder': ['refl_name', 'journal_name'],
}

# (name, what is done). `=` sets an item, `sync` is a barrier.
STEPS = [
    ('make_refl', ('=', 'refl_bytes', 'made')),
    ('first_super', ('=', 'super', 'made')),
    ('sync_refl', ('sync', 'refl')),
    ('rename', ('=', 'refl_name', True)),
    ('make_journal', ('=', 'journal_bytes', 'header')),
    ('name_journal', ('=', 'journal_name', True)),
    ('lengthen', ('=', 'home_len', True)),
    ('sync_journal', ('sync', 'journal')),
    ('sync_folder', ('sync', 'folder')),
    ('mark', ('=', 'mark', True)),
    ('sync_mark', ('sync', 'home')),
    ('begin', ('=', 'super', 'in use')),
    ('sync_begin', ('sync', 'refl')),
    ('opened', ('now', 'opened')),
    # A write is in the reflection file alone: its durable slot is the home file's.
    ('write', ('=', 'refl_bytes', 'new')),
    ('record', ('=', 'record', 'new')),
    ('sync_record', ('sync', 'record')),
    ('point', ('now', 'point')),
    # A spatial close.
    ('deploy', ('=', 'home_bytes', 'new')),
    ('sync_home', ('sync', 'home')),
    ('empty', ('=', 'super', 'emptied')),
    ('sync_emptied', ('sync', 'block')),
    ('unmark', ('=', 'mark', False)),
    ('sync_unmark', ('sync', 'home')),
    ('remove_journal', ('=', 'journal_name', False)),
    ('remove_refl', ('=', 'refl_name', False)),
    ('sync_removal', ('sync', 'folder')),
    ('closed', ('now', 'closed')),
]
START = {
    'home_bytes': 'old', 'home_len': False, 'mark': False, 'refl_bytes': None, 'super': None,
    'journal_bytes': None, 'record': None, 'refl_name': False, 'journal_name': False,
}

# Steps that are left out, or moved behind another one.
MUTANTS = {
    'sync_refl': None, 'sync_journal': None, 'sync_folder': None, 'sync_mark': None, 'sync_begin': None,
    'sync_record': None, 'sync_home': None, 'sync_emptied': None, 'sync_unmark': None, 'sync_removal': None,
    'mark_before_names': ('sync_folder', 'sync_mark'),
    'begin_before_mark': ('sync_mark', 'sync_begin'),
    'unmark_before_emptied': ('sync_emptied', 'sync_unmark'),
    'removed_before_unmark': ('sync_unmark', 'remove_refl'),
    'deployed_before_record': ('sync_record', 'sync_home'),
}


def steps(mutant):
    left_out = {mutant} & {name for name, _ in STEPS}
    found = [step for step in STEPS if step[0] not in left_out]
    if MUTANTS.get(mutant):
        early, late = MUTANTS[mutant]
        moved = next(step for step in found if step[0] == early)
        found.remove(moved)
        found.insert(1 + next(i for i, step in enumerate(found) if step[0] == late), moved)
    return found


def opening(disk):
    """What the next opening finds: `refused`, or what the file holds. Garbage is neither old nor new."""
    marked, there = disk['mark'], disk['refl_name']
    if not there:
        return 'refused: the reflection file is gone' if marked else disk['home_bytes']
    said = disk['super'] if disk['refl_bytes'] else None
    if said is None:
        return 'refused: damaged'
    if said in ('made', 'emptied'):
        return disk['home_bytes']
    if not marked:
        return 'refused: the mark is gone'
    if not disk['journal_name'] or not disk['journal_bytes']:
        return 'refused: the journal is gone'
    # Replay brings the slices of the record, and everything else is as at the beginning of the session.
    if disk['record'] == 'new':
        return 'new'
    return disk['home_bytes']


def check(mutant):
    kept = {item: [value] for item, value in START.items()}
    may, bad, images = {'old'}, [], 0
    for name, (kind, what, *value) in steps(mutant):
        if kind == '=':
            kept[what].append(value[0])
            if what == 'record':
                may = {'old', 'new'}
            if what == 'home_bytes':
                # A torn deployment is a third value.
                kept[what].insert(-1, 'torn')
        elif kind == 'sync':
            for item in FILES[what]:
                kept[item] = [kept[item][-1]]
        elif what in ('point', 'closed'):
            may = {'new'}
        is_closed = name == 'closed'
        items = list(kept)
        for values in itertools.product(*(dict.fromkeys(kept[item]) for item in items)):
            disk = dict(zip(items, values))
            images += 1
            found = opening(disk)
            leftover = is_closed and (disk['refl_name'] or disk['mark'])
            begins = name == 'opened' and (disk['super'] != 'in use' or not disk['home_len'])
            if found not in may or leftover or begins:
                bad.append((name, found))
    return images, bad


def run(mutant):
    images, bad = check(mutant)
    first = f', first after {bad[0][0]}: {bad[0][1]}' if bad else ''
    print(f'{mutant}: {images} images, {len(bad)} violations{first}')
    return bool(bad)


if __name__ == '__main__':
    if sys.argv[1:2] == ['--all']:
        wrong = run('none')
        for mutant in MUTANTS:
            found = run(mutant)
            wrong |= not found
            if not found:
                print(f'  NOT FOUND: {mutant}')
        sys.exit(wrong)
    mutant = sys.argv[1] if len(sys.argv) > 1 else 'none'
    sys.exit(run(mutant) != (mutant != 'none'))
