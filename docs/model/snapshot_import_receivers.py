#!/usr/bin/env python3
"""A part of snapshot_import.py: several receivers of one new file, with its names and locks."""
from snapshot_import_machine import STATS, Violation, is_


class Folder:
    """Names and files. A file is [parts, durable, the receiver that has its lock]."""

    def __init__(s, receivers_):
        s.names, s.files, s.seen_home = {}, [], None
        s.at = [('open', None, None)] * receivers_
        s.deaths = s.errors = 0

    def copy(s):
        t = Folder.__new__(Folder)
        t.__dict__.update(s.__dict__)
        t.names, t.files, t.at = dict(s.names), [list(f) for f in s.files], list(s.at)
        return t

    def key(s):
        return (tuple(sorted(s.names.items())), tuple((tuple(p), d, lock) for p, d, lock in s.files), tuple(s.at),
                s.deaths, s.errors)

    def make(s, name):
        s.files.append([(), False, None])
        s.names[name] = len(s.files) - 1
        return s.names[name]

    def unlock(s, who):
        for file in s.files:
            file[2] = None if file[2] == who else file[2]

    def step(s, who, fails=False):
        step, spool, new = s.at[who]
        go = lambda to, spool=spool, new=new: s.at.__setitem__(who, (to, spool, new))
        if fails and step in ('write_new', 'write_spool', 'sync'):
            s.errors += 1
            return go('undo')
        if step == 'open':
            if 'home' in s.names:
                return go('refused')
            return go('lock', s.names['spool'] if 'spool' in s.names else s.make('spool'))
        if step == 'lock':
            if s.files[spool][2] is not None and not is_('no_lock'):
                return go('refused')
            s.files[spool][2] = who
            return go('look')
        if step == 'look':
            if s.names.get('spool') != spool and not is_('lock_of_removed') and not is_('no_lock'):
                s.unlock(who)
                return go('open', None)
            return go('write_spool')
        if step == 'write_spool':
            s.files[spool][0] = (who,)
            return go('create')
        if step == 'create':
            if 'new' in s.names and is_('unfinished_taken'):
                return go('write_new', new=s.names['new'])
            s.names.pop('new', None)
            return go('write_new', new=s.make('new'))
        if step in ('write_new', 'write_more'):
            if s.files[spool][0] != (who,):
                return go('undo')                 # the checksums are of another stream
            s.files[new][0] += (who,)
            return go('write_more' if step == 'write_new' else 'sync')
        if step == 'sync':
            s.files[new][1] = True
            return go('name')
        if step == 'name':
            if 'new' not in s.names or 'home' in s.names and not is_('name_replaces'):
                return go('undo')
            s.names['home'] = s.names['new']
            if not is_('linked'):
                del s.names['new']
            return go('unlink' if is_('linked') else 'remove')
        if step == 'unlink':
            s.names.pop('new', None)
            return go('remove')
        if step in ('undo', 'remove'):
            if step == 'undo' and s.names.get('new') == new and new is not None:
                del s.names['new']
            if s.names.get('spool') == spool:
                del s.names['spool']
            return go('unlock_failed' if step == 'undo' else 'unlock')
        s.unlock(who)
        go('failed' if step == 'unlock_failed' else 'done')

    def check(s):
        home = s.names.get('home')
        if s.seen_home is not None and home != s.seen_home:
            raise Violation('a file was replaced')
        if home is None:
            return
        s.seen_home = home
        parts, durable, _ = s.files[home]
        if len(parts) != 2 or parts[0] != parts[1]:
            raise Violation(f'the new file has {parts}')
        if not durable:
            raise Violation('the new file has its name and may be lost')
        if s.names.get('new') == home:
            raise Violation('a crash leaves the new file with two names')
        if any(at[0] == 'done' and parts[0] != who for who, at in enumerate(s.at)):
            raise Violation('a receiver has another one\'s file')


ENDED = ('refused', 'failed', 'done', 'dead')


def receivers():
    start = Folder(3)
    seen, todo = {start.key()}, [start]
    while todo:
        folder = todo.pop()
        for who in range(3):
            if folder.at[who][0] in ENDED:
                continue
            for kind in ('step', 'fails', 'dies'):
                if kind == 'fails' and folder.errors or kind == 'dies' and folder.deaths:
                    continue
                t = folder.copy()
                if kind == 'dies':
                    t.deaths += 1
                    t.unlock(who)
                    t.at[who] = ('dead', None, None)
                else:
                    if is_('named_unsynced') and t.at[who][0] == 'sync':
                        t.at[who] = ('name', *t.at[who][1:])
                    t.step(who, kind == 'fails')
                t.check()
                STATS['interleavings'] += 1
                if t.key() not in seen:
                    seen.add(t.key())
                    todo.append(t)
