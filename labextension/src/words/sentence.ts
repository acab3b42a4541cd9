/**
 * The current state as one line of plain words: the twin of `jupyter_gpu/model/sentence.py`.
 * In English both give the same words; `tests/golden/sentences.json` is the proof.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import { BadAnswerError, RefusedError, UnreachableError } from '../api/request';
import { GpuState, IGpu, IStranger, IUser, IUserLimit, IView } from '../api/view';
import { EXACT_POSITIONS, formatGpus, MILLI_PER_GPU } from './quantity';

/** The maker of the lines: that of `remote-sentence.ts`, once it is loaded. */
let Kind: typeof Sentence | null = null;

/** Have `kind` make the lines from now on. */
export function learn(kind: typeof Sentence): void {
  Kind = kind;
}

/** The line for `view`. */
export function sentence(view: IView, trans: TranslationBundle): string {
  return new (Kind ?? Sentence)(view, trans).text();
}

/** `"1 GPU"`, `"0.25 GPU"`, `"2 GPUs"`, `"0 GPUs"`. */
export function gpus(milli: number, trans: TranslationBundle): string {
  const amount = formatGpus(milli);
  return 0 < milli && milli <= MILLI_PER_GPU
    ? trans.__('%1 GPU', amount)
    : trans.__('%1 GPUs', amount);
}

/** `"a"`, `"a and b"`, `"a, b and c"`. */
export function join(words: readonly string[], trans: TranslationBundle): string {
  return words.length < 2
    ? (words[0] ?? '')
    : trans.__('%1 and %2', words.slice(0, -1).join(', '), words[words.length - 1]);
}

/** The name of a process in a sentence. */
export function userName(user: IUser, trans: TranslationBundle): string {
  if (user.notebook) {
    return user.label ?? user.notebook.slice(user.notebook.lastIndexOf('/') + 1);
  }
  return user.pid ? trans.__('%1 (process %2)', user.command, user.pid) : user.command;
}

/** The name of a process that did not get its GPU from this product. */
export function strangerName(stranger: IStranger, trans: TranslationBundle): string {
  const { pid, command, user } = stranger;
  if (pid && user) {
    return trans.__('%1 (process %2, %3)', command, pid, user);
  }
  if (pid) {
    return trans.__('%1 (process %2)', command, pid);
  }
  return user ? trans.__('%1 (%2)', command, user) : command;
}

/** An error and what to do about it, for users. */
export function explain(error: Error, trans: TranslationBundle): string {
  if (error instanceof UnreachableError) {
    return trans.__('The server did not answer. Nothing is known to have changed.');
  }
  if (error instanceof BadAnswerError) {
    return trans.__(
      'The server’s answer does not fit this page (%1). Reload the page.',
      error.message
    );
  }
  if (error instanceof RefusedError && error.status === 404) {
    return trans.__('This server has no jupyter-gpu, or it is switched off there.');
  }
  return error.message;
}

/** Whether all that the user's limit allows is there, and the rest waits until the limit is raised. */
export const isLimited = ({ phase, reason }: IView) =>
  phase === 'Waiting' && reason === 'LimitExceeded';

/** Return the milli that `limit` leaves for this server. */
const left = ({ milli }: IUserLimit) => milli ?? Infinity;

/** The line of a view. */
export class Sentence {
  constructor(
    protected readonly view: IView,
    protected readonly trans: TranslationBundle
  ) {}

  /** GPUs that are still being given back are always mentioned. */
  text(): string {
    const back = this.back();
    return this.list(this.view.phase === 'Releasing' ? back : [this.now(), ...back]);
  }

  protected list(parts: readonly string[]): string {
    return parts.filter(Boolean).reduce((said, next) => this.trans.__('%1; %2', said, next));
  }

  /** The part that is being given back: never nothing while all that goes on is that. */
  protected back(): string[] {
    const leaving = this.inState('draining');
    return leaving.length || this.view.phase === 'Releasing' ? [this.givingBack(leaving)] : [];
  }

  protected attaching(): string {
    return this.trans.__('attaching %1…', this.names(this.inState('attaching')));
  }

  /** The attached amount of all that the server may have. */
  protected attached(): string {
    const { amounts, limit } = this.view;
    const of = gpus(limit, this.trans);
    return this.trans.__('%1 of %2 attached', formatGpus(amounts.attached), of);
  }

  /** The part before all others; empty where they say enough. */
  protected now(): string {
    const { view, trans } = this;
    const { requested, allocated, attached } = view.amounts;
    if (view.phase === 'Degraded') {
      return this.stopped();
    }
    if (view.total === 0) {
      return trans.__('no GPU here');
    }
    switch (view.phase) {
      case 'Refused':
        return this.refused();
      case 'Pending':
        return requested
          ? trans.__('asking for %1…', gpus(requested, trans))
          : trans.__('giving back all GPUs…');
      case 'Attaching':
        return view.reason
          ? trans.__('waiting for memory: another share still uses it')
          : this.attaching();
    }
    const limit = view.userLimit;
    if (limit && allocated > left(limit)) {
      return this.over(limit);
    }
    if (view.phase === 'Waiting') {
      return this.waiting();
    }
    if (attached > view.limit) {
      return trans.__(
        "%1 attached, over your server's limit of %2",
        gpus(attached, trans),
        formatGpus(view.limit)
      );
    }
    if (view.limit) {
      return this.attached();
    }
    if (!limit || left(limit)) {
      return trans.__("no GPU attached: your server's limit is 0");
    }
    return limit.max
      ? trans.__(
          'no GPU attached: your other servers have all of your limit of %1',
          gpus(limit.max, trans)
        )
      : trans.__('no GPU attached: your limit is 0');
  }

  /** The GPUs that stopped working, and their number. */
  protected broken(): [string, number] {
    const found = this.inState('unhealthy');
    return [this.names(found), found.length];
  }

  private stopped(): string {
    const { trans } = this;
    const [names, count] = this.broken();
    return count > 1
      ? trans.__('%1 stopped working: give them back and ask again to get others', names)
      : trans.__('%1 stopped working: give it back and ask again for another', names);
  }

  private refused(): string {
    const { view, trans } = this;
    const { requested, attached } = view.amounts;
    const amount = formatGpus(requested);
    const over = view.reason === 'LimitExceeded';
    const kept = !attached
      ? trans.__('nothing was changed')
      : over
        ? trans.__('it keeps %1', formatGpus(attached))
        : trans.__('your server keeps %1', formatGpus(attached));
    if (over) {
      const limit = gpus(view.limit, trans);
      return trans.__("%1 is over your server's limit of %2: %3", amount, limit, kept);
    }
    return requested > view.total
      ? trans.__('%1 is more than the %2 here: %3', amount, gpus(view.total, trans), kept)
      : trans.__('the GPUs here can never fit this request: %1', kept);
  }

  private waiting(): string {
    const { view, trans } = this;
    const { position, userLimit: limit } = view;
    const { requested, allocated } = view.amounts;
    const parked = this.parked();
    const allowed = isLimited(view)
      ? allocated + parked
      : Math.min(requested, limit ? left(limit) : requested);
    const [missing, rest] = [allowed - allocated - parked, requested - allowed];
    const place = position ? ordinal(position, trans) : '';
    const line = !position
      ? ''
      : position > EXACT_POSITIONS
        ? trans.__(', your server is about %1 in line', place)
        : trans.__(', your server is %1 in line', place);
    const [lost, parts] = this.lost();
    if (missing > 0) {
      const when =
        missing <= MILLI_PER_GPU ? trans.__('when it is free') : trans.__('when they are free');
      parts.push(trans.__('%1 %2%3', this.more(missing, allocated + parked), when, line));
    }
    if (limit && rest) {
      parts.push(this.whenRaised(limit, allowed, this.more(rest, allowed)));
    }
    if (!parts.length) {
      parts.push(this.memory(line));
    }
    const have = formatGpus(allocated - lost);
    return trans.__('%1 of %2: %3', have, formatGpus(requested), this.list(parts));
  }

  /** The line of a wait for memory alone. */
  protected memory(line: string): string {
    return `${this.trans.__('more memory when it is free')}${line}`;
  }

  /** Milli that is parked, so that nothing waits for it. */
  protected parked(): number {
    return 0;
  }

  /** Milli that the server was given and cannot have now, and when it can. */
  protected lost(): [number, string[]] {
    return [0, []];
  }

  protected more(milli: number, before: number): string {
    const word = this.word(milli);
    return before ? this.trans.__('%1 more', word) : word;
  }

  private whenRaised(limit: IUserLimit, allowed: number, more: string): string {
    const { trans } = this;
    if (allowed < left(limit)) {
      return trans.__('%1 when your limits allow it', more);
    }
    const most = gpus(limit.max!, trans);
    return limit.milli! < limit.max!
      ? trans.__(
          '%1 when your limit of %2 is raised, or when your other servers give some back',
          more,
          most
        )
      : trans.__('%1 when your limit of %2 is raised', more, most);
  }

  private over(limit: IUserLimit): string {
    const { view, trans } = this;
    const { allocated, attached } = view.amounts;
    const others = Math.max(0, limit.max! - limit.milli!);
    const [have, most] = [gpus(attached, trans), formatGpus(limit.max!)];
    const text = others
      ? trans.__(
          '%1 attached, over your limit of %2, of which your other servers have %3',
          have,
          most,
          formatGpus(others)
        )
      : trans.__('%1 attached, over your limit of %2', have, most);
    const back = gpus(allocated - limit.milli!, trans);
    return limit.giveBackAt === null
      ? text
      : others
        ? trans.__('%1: up to %2 will be taken back soon', text, back)
        : trans.__('%1: %2 will be taken back soon', text, back);
  }

  protected givingBack(leaving: readonly IGpu[]): string {
    const { trans } = this;
    const held = leaving.filter(gpu => gpu.users.length > 0);
    const which = this.names(leaving);
    if (held.length === 0) {
      return trans.__('giving back %1…', which);
    }
    const users = held.flatMap(gpu => gpu.users.map(user => userName(user, trans)));
    const names = [...new Set(users)].sort(byCodePoint);
    const who = join(this.few(names), trans);
    const one = names.length === 1;
    if (leaving.length === 1) {
      return one
        ? trans.__('giving back %1: %2 still has it open', which, who)
        : trans.__('giving back %1: %2 still have it open', which, who);
    }
    if (held.length === leaving.length) {
      return one
        ? trans.__('giving back %1: %2 still has them open', which, who)
        : trans.__('giving back %1: %2 still have them open', which, who);
    }
    return one
      ? trans.__('giving back %1: %2 still has %3 open', which, who, this.names(held))
      : trans.__('giving back %1: %2 still have %3 open', which, who, this.names(held));
  }

  protected inState(state: GpuState): readonly IGpu[] {
    return this.view.gpus.filter(gpu => gpu.state === state);
  }

  protected names(some: readonly IGpu[]): string {
    const { trans } = this;
    const numbers = join(
      some.map(gpu => String(gpu.index)),
      trans
    );
    switch (some.length) {
      case 0:
        return trans.__('a GPU');
      case 1:
        return trans.__('GPU %1', numbers);
      default:
        return trans.__('GPUs %1', numbers);
    }
  }

  protected few(names: readonly string[]): readonly string[] {
    const { trans } = this;
    return names.length <= 3
      ? names
      : [...names.slice(0, 2), trans.__('%1 others', names.length - 2)];
  }

  private word(milli: number): string {
    const { trans } = this;
    const words = [
      trans.__('none'),
      trans.__('one'),
      trans.__('two'),
      trans.__('three'),
      trans.__('four'),
      trans.__('five'),
      trans.__('six'),
      trans.__('seven'),
      trans.__('eight'),
      trans.__('nine')
    ];
    const whole = milli / MILLI_PER_GPU;
    return Number.isInteger(whole) && whole < words.length ? words[whole] : formatGpus(milli);
  }
}

function ordinal(n: number, trans: TranslationBundle): string {
  if (n === 1) {
    return trans.__('first');
  }
  const teen = n % 100 >= 11 && n % 100 <= 13;
  switch (teen ? 0 : n % 10) {
    case 1:
      return trans.__('%1st', n);
    case 2:
      return trans.__('%1nd', n);
    case 3:
      return trans.__('%1rd', n);
    default:
      return trans.__('%1th', n);
  }
}

/** As Python sorts text: by code points, not by UTF-16 units nor by language. */
function byCodePoint(a: string, b: string): number {
  const left = Array.from(a);
  const right = Array.from(b);
  for (let i = 0; i < Math.min(left.length, right.length); i++) {
    const difference = left[i].codePointAt(0)! - right[i].codePointAt(0)!;
    if (difference) {
      return difference;
    }
  }
  return left.length - right.length;
}
