/**
 * What became of a wait for GPUs, told from one view to the next. Pure.
 *
 * What somebody did just now is no news: a wait whose wish was changed is followed no further.
 */
import { IView } from './api';

/** A wait for GPUs. */
interface IWait {
  /** Of the wish that waits. */
  readonly generation: number;
  /** Milliseconds since the epoch. */
  readonly since: number;
  /** Milli attached when somebody was last told. */
  readonly attached: number;
}

/** What is remembered from one view to the next. */
export interface IFollowed {
  readonly instance: string;
  readonly wait: IWait | null;
  /** Uuids of the GPUs that worked. */
  readonly working: ReadonlySet<string>;
}

/** All have come, some have come, none can come; or one that was there stopped working. */
export type Kind = 'came' | 'partly' | 'cannot' | 'lost';

/** Something to tell. */
export interface INews {
  readonly kind: Kind;
  /** The same in every tab of a browser, and never of two things. */
  readonly id: string;
  /** Milliseconds for which was waited; 0 for what was lost. */
  readonly waited: number;
}

/** What is new in `view`, and what to remember of it; `before` is `null` for the first view. */
export function follow(
  before: IFollowed | null,
  view: IView,
  now: number
): { readonly followed: IFollowed; readonly news: readonly INews[] } {
  const known = before?.instance === view.instance ? before : null;
  const wait = known?.wait ?? null;
  const news: INews[] = [];
  const tell = (kind: Kind, about: string, waited = 0) =>
    news.push({ kind, id: [view.instance, kind, about].join(' '), waited });

  for (const { uuid, state } of view.gpus) {
    if (state === 'unhealthy' && known?.working.has(uuid)) {
      tell('lost', `${uuid} ${view.version}`);
    }
  }
  const kind = wait && outcome(wait, view);
  if (wait && kind) {
    tell(kind, `${wait.generation} ${view.amounts.attached}`, now - wait.since);
  }
  return {
    followed: { instance: view.instance, wait: next(wait, view, now), working: working(view) },
    news
  };
}

/** What `view` says of `wait`; `null`: nothing yet, or nothing that is not known already. */
function outcome(wait: IWait, view: IView): Kind | null {
  if (view.requested?.generation !== wait.generation) {
    return null;
  }
  switch (view.phase) {
    case 'Ready':
      return 'came';
    case 'Refused':
      return 'cannot';
    case 'Waiting':
      return view.amounts.attached > wait.attached ? 'partly' : null;
    default:
      return null; // on the way
  }
}

function next(wait: IWait | null, view: IView, now: number): IWait | null {
  const generation = view.requested?.generation ?? 0;
  const same = wait?.generation === generation ? wait : null;
  const { attached } = view.amounts;
  if (view.phase === 'Waiting') {
    return { generation, since: same?.since ?? now, attached };
  }
  return view.settled ? null : same; // such as attaching what came
}

function working(view: IView): ReadonlySet<string> {
  return new Set(view.gpus.filter(gpu => gpu.state === 'attached').map(gpu => gpu.uuid));
}

/** How this tab stands when there is news. */
export interface ISight {
  /** Nobody can see the tab. */
  readonly hidden: boolean;
  /** The panel, or the slider in its popover, is in sight. */
  readonly open: boolean;
}

/** Milliseconds: less is hardly a wait; after more, who looked at first looks no more. */
const SHORT = 3000;
const LONG = 30_000;

/** Whether to say `news`, or whether it is seen anyway. */
export function isWorthSaying({ kind, waited }: INews, { hidden, open }: ISight): boolean {
  const unseen = hidden || !open;
  return kind === 'lost' ? unseen : waited >= LONG || (waited >= SHORT && unseen);
}
