/** The actions for the current state of the GPUs: buttons below the sentence. Pure. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { IRequest } from '../api/request';
import { IUser, IView } from '../api/view';
import { gpus, isLimited, userName } from '../words/sentence';

/** A button. */
export type Action = {
  readonly label: string;
  /** Its effect, in a sentence. */
  readonly title: string;
} & (
  | { readonly kind: 'restart'; readonly user: IUser & { readonly kernel: string } }
  | { readonly kind: 'request'; readonly request: IRequest }
);

/** The buttons for `view`, the likeliest first. */
export function actions(view: IView, trans: TranslationBundle): readonly Action[] {
  const { allocated, attached } = view.amounts;
  return [
    ...restarts(view, trans),
    ...phaseActions(view, trans),
    ...(allocated || attached ? [release(trans)] : [])
  ];
}

function restarts(view: IView, trans: TranslationBundle): Action[] {
  const kernels = new Map<string, Action>();
  for (const gpu of view.gpus) {
    for (const user of gpu.state === 'draining' ? gpu.users : []) {
      if (user.kernel !== null && !user.foreign) {
        kernels.set(user.kernel, {
          kind: 'restart',
          user: { ...user, kernel: user.kernel },
          label: trans.__('Restart kernel of %1…', userName(user, trans)),
          title: trans.__(
            'Ends what runs in %1 and loses its variables; the GPU is free then',
            user.notebook ?? userName(user, trans)
          )
        });
      }
    }
  }
  return [...kernels.values()];
}

function phaseActions(view: IView, trans: TranslationBundle): Action[] {
  switch (view.phase) {
    case 'Waiting':
      return [isLimited(view) ? whenLimited(view, trans) : whenWaiting(view, trans)];
    case 'Refused':
      return [whenRefused(view, trans)];
    case 'Releasing':
      return whenReleasing(view, trans);
    case 'Degraded':
      return [whenDegraded(view, trans)];
    default:
      return [];
  }
}

function whenLimited(view: IView, trans: TranslationBundle): Action {
  return keepAllocated(
    view,
    trans,
    trans.__('Stop waiting'),
    trans.__('Ask for no more than your limit allows now')
  );
}

function whenWaiting(view: IView, trans: TranslationBundle): Action {
  const { allocated, attached } = view.amounts;
  const have = Math.min(allocated, attached); // a worker that cannot start has a part that is not attached
  return have
    ? keep(
        view,
        have,
        trans.__('Keep %1', gpus(have, trans)),
        trans.__('Leave the line with what you have')
      )
    : keep(view, 0, trans.__('Stop waiting'), trans.__('Leave the line'));
}

function whenRefused(view: IView, trans: TranslationBundle): Action {
  return keepAllocated(
    view,
    trans,
    trans.__('Withdraw'),
    trans.__('Ask for what you have'),
    true // or the options that made it impossible would stay
  );
}

function whenReleasing(view: IView, trans: TranslationBundle): Action[] {
  const { allocated, draining } = view.amounts;
  const before = allocated + draining;
  return draining && before <= view.limit
    ? [
        keep(
          view,
          before,
          trans.__('Keep %1 after all', gpus(before, trans)),
          trans.__('Take back what is not given back yet')
        )
      ]
    : [];
}

function whenDegraded(view: IView, trans: TranslationBundle): Action {
  const healthy = view.gpus
    .filter(gpu => gpu.state === 'attached' || gpu.state === 'attaching')
    .reduce((sum, gpu) => sum + gpu.milli, 0);
  return keep(
    view,
    healthy,
    trans.__('Give it back'),
    trans.__('Keep only the GPUs that work: %1', gpus(healthy, trans))
  );
}

/** The button that requests `milli`, if the request is still the one on which the button is based. */
function keep(
  view: IView,
  milli: number,
  label: string,
  title: string,
  forget = milli === 0
): Action {
  const request = { ...basedOnCurrent(view), milli, ...(forget ? { forget } : {}) };
  return { kind: 'request', label, title, request };
}

/** The button that requests what is allocated, or nothing: then it is called `none`. */
function keepAllocated(
  view: IView,
  trans: TranslationBundle,
  none: string,
  title: string,
  forget?: boolean
): Action {
  const { allocated } = view.amounts;
  const label = allocated ? trans.__('Keep %1', gpus(allocated, trans)) : none;
  return keep(view, allocated, label, title, forget);
}

function release(trans: TranslationBundle): Action {
  return {
    kind: 'request',
    label: trans.__('Release all'),
    title: trans.__('Give every GPU back'),
    request: { milli: 0, forget: true }
  };
}

/** The current generation: the server refuses if the request has changed meanwhile, as the button was about that one. */
function basedOnCurrent(view: IView): Pick<IRequest, 'generation'> {
  return view.requested ? { generation: view.requested.generation } : {};
}
