/** The limit of the server's user in plain words: the twin of `described` in `jupyter_gpu/model/limit_words.py`. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { ISource, IUserLimit } from '../api/view';
import { formatGpus } from './quantity';
import { gpus } from './sentence';

/** Most letters of a name that are shown. */
const MOST = 64;

/** `"Your limit is 2 GPUs, set for group ml by root on 3 May. Your other servers have 1."` */
export function describeLimit(limit: IUserLimit, trans: TranslationBundle): string {
  const { milli, max } = limit;
  if (max === null) {
    return trans.__('You have no limit.');
  }
  const source = describeSource(limit.source, trans);
  const text = trans.__('Your limit is %1, %2.', gpus(max, trans), source);
  const left = milli ?? max;
  if (left >= max) {
    return text;
  }
  return left
    ? trans.__('%1 Your other servers have %2.', text, formatGpus(max - left))
    : trans.__('%1 Your other servers have all of that.', text);
}

/**
 * `"set for group ml by root on 3 May"`: the twin of `Source.sentence` in `jupyter_gpu/model/limits/source.py`.
 * `you`: the reader is the user, not an administrator.
 */
export function describeSource(source: ISource, trans: TranslationBundle, you = true): string {
  if (source.kind === 'Unset') {
    return trans.__('as no limit is set');
  }
  const who = written(source, trans);
  const what = namedPart(source, trans, you);
  const whom = subject(source, trans, you);
  const text = what
    ? who
      ? trans.__('%1, set %2', what, who)
      : what
    : who
      ? trans.__('set for %1 %2', whom, who)
      : trans.__('set for %1', whom);
  return source.unreadable
    ? trans.__('%1; it cannot be read, so the least that it could mean holds', text)
    : text;
}

/** `"9 min"`, the time until something happens; `seconds` are whole. */
export function timeLeft(seconds: number, trans: TranslationBundle): string {
  if (seconds <= 60) {
    return trans.__('%1 s', seconds);
  }
  const minutes = Math.ceil(seconds / 60);
  return minutes < 60
    ? trans.__('%1 min', minutes)
    : trans.__('%1 h %2 min', Math.floor(minutes / 60), minutes % 60);
}

/** The language of dates. In English the day stands before the month, as in Python. */
export function locale(trans: TranslationBundle): string {
  const language = (trans as { getLocale?(): string }).getLocale?.() ?? 'en'; // JupyterLab's bundles have it
  return language.startsWith('en') ? 'en-GB' : language;
}

function subject({ kind, name }: ISource, trans: TranslationBundle, you: boolean): string {
  switch (kind) {
    case 'User':
      return you ? trans.__('you') : trans.__('user %1', shown(name));
    case 'Group':
      return trans.__('group %1', shown(name));
    case 'Namespace':
      return trans.__('namespace %1', shown(name));
    default:
      return trans.__('everyone');
  }
}

/** The default, the cap, or the part of a limit that lowers the maximum; empty: the limit itself. */
function namedPart(source: ISource, trans: TranslationBundle, you: boolean): string {
  const { kind, part } = source;
  const cap = kind === 'Cap';
  switch (part) {
    case 'hours':
      return cap
        ? trans.__('the hours of the cap for everyone')
        : trans.__('the hours for %1', subject(source, trans, you));
    case 'budget':
      return cap
        ? trans.__('the used-up budget of the cap for everyone')
        : trans.__('the used-up budget for %1', subject(source, trans, you));
  }
  return cap
    ? trans.__('the cap for everyone')
    : kind === 'Default'
      ? trans.__('the default for everyone')
      : '';
}

/** `"by root on 3 May"`, or as much of it as is known. */
function written({ by, at }: ISource, trans: TranslationBundle): string {
  const name = by && shown(by);
  const day = at === null ? '' : date(at, trans);
  if (name && day) {
    return trans.__('by %1 on %2', name, day);
  }
  return name ? trans.__('by %1', name) : day && trans.__('on %1', day);
}

function date(at: number, trans: TranslationBundle): string {
  const options = { day: 'numeric', month: 'long', timeZone: 'UTC' } as const;
  return new Date(1000 * at).toLocaleDateString(locale(trans), options);
}

function shown(name: string): string {
  const letters = Array.from(name);
  return letters.length > MOST ? `${letters.slice(0, MOST - 1).join('')}…` : name || '?';
}
