/**
 * Notices about waits for GPUs, about failures and lowered limits, found by comparing a view with the one before. Pure.
 *
 * The user's own changes cause no notice: a wait whose request was changed is dropped.
 */
import { IGpu, IView } from '../api/view';

/** A wait for GPUs. */
interface IWait {
  /** Generation of the request that waits. */
  readonly generation: number;
  /** Milliseconds since the epoch. */
  readonly since: number;
  /** Milli attached at the last notice. */
  readonly attached: number;
}

/** State kept from one view to the next. */
export interface IFollowed {
  readonly instance: string;
  readonly wait: IWait | null;
  /** Uuids of the working GPUs. */
  readonly working: ReadonlySet<string>;
  /** Seconds since 1970 at which GPUs above the user's limit are taken back. */
  readonly giveBackAt: number | null;
}

/** All have come, some have come, they cannot come, an attached one stopped working, or the limit was lowered. */
export type Kind = 'came' | 'partly' | 'cannot' | 'lost' | 'lowered';

/** A notice for the user. */
export interface INotice {
  readonly kind: Kind;
  /** The same in every tab of a browser, and unique otherwise. */
  readonly id: string;
  /** Length of the wait in milliseconds; 0 for a failure. */
  readonly waited: number;
}

/** The notices of `view`, and the state to keep; `before` is `null` for the first view. */
export function follow(
  before: IFollowed | null,
  view: IView,
  now: number
): { readonly followed: IFollowed; readonly notices: readonly INotice[] } {
  const known = before?.instance === view.instance ? before : null;
  const wait = known?.wait ?? null;
  const notices: INotice[] = [];
  const add = (kind: Kind, about: string, waited = 0) =>
    notices.push({ kind, id: [view.instance, kind, about].join(' '), waited });

  for (const { uuid, state } of states(view)) {
    if (state === 'unhealthy' && known?.working.has(uuid)) {
      add('lost', `${uuid} ${view.version}`);
    }
  }
  const giveBackAt = view.userLimit?.giveBackAt ?? null;
  if (giveBackAt !== null && giveBackAt !== before?.giveBackAt) {
    add('lowered', String(giveBackAt));
  }
  const kind = wait && outcome(wait, view);
  if (wait && kind) {
    add(kind, `${wait.generation} ${view.amounts.attached}`, now - wait.since);
  }
  return {
    followed: {
      instance: view.instance,
      wait: next(wait, view, now),
      working: working(view),
      giveBackAt
    },
    notices
  };
}

/** The outcome of `wait` in `view`; `null`: none yet, or no new one. */
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
      return null; // under way
  }
}

function next(wait: IWait | null, view: IView, now: number): IWait | null {
  const generation = view.requested?.generation ?? 0;
  const same = wait?.generation === generation ? wait : null;
  const { attached } = view.amounts;
  if (view.phase === 'Waiting') {
    return { generation, since: same?.since ?? now, attached };
  }
  return view.settled ? null : same; // such as attaching new GPUs
}

type IKnown = Pick<IGpu, 'uuid' | 'state'>;

/** The state of each GPU, of this node and of others. */
function states({ gpus, workers }: IView): readonly IKnown[] {
  const away = workers.flatMap(worker => worker.gpus);
  const known = away.map(({ uuid, health }): IKnown => ({
    uuid,
    state: health ? 'unhealthy' : 'attached'
  }));
  return [...gpus, ...known];
}

function working(view: IView): ReadonlySet<string> {
  const found = states(view).filter(({ state }) => state === 'attached');
  return new Set(found.map(({ uuid }) => uuid));
}
