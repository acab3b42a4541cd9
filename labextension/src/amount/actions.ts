/** The actions for the current state of the GPUs: buttons below the sentence. Pure. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { IWish } from '../api/request';
import { IUser, IView } from '../api/view';
import { gpus, isLimited, userName } from '../words/sentence';

/** A button. */
export type Action = {
  readonly label: string;
  /** Its effect, in a sentence. */
  readonly title: string;
} & (
  | { readonly kind: 'restart'; readonly user: IUser & { readonly kernel: string } }
  | { readonly kind: 'wish'; readonly wish: IWish }
);

/** The buttons for `view`, the likeliest first. */
export function actions(view: IView, trans: TranslationBundle): readonly Action[] {
  const { allocated, attached } = view.amounts;
  return [
    ...restarts(view, trans),
    ...others(view, trans),
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

function others(view: IView, trans: TranslationBundle): Action[] {
  const { allocated, draining } = view.amounts;
  switch (view.phase) {
    case 'Waiting':
      if (isLimited(view)) {
        return [
          keep(
            view,
            allocated,
            allocated ? trans.__('Keep %1', gpus(allocated, trans)) : trans.__('Stop waiting'),
            trans.__('Ask for no more than your limit allows now')
          )
        ];
      }
      return allocated
        ? [
            keep(
              view,
              allocated,
              trans.__('Keep %1', gpus(allocated, trans)),
              trans.__('Leave the line with what you have')
            )
          ]
        : [keep(view, 0, trans.__('Stop waiting'), trans.__('Leave the line'))];
    case 'Refused':
      return [
        keep(
          view,
          allocated,
          allocated ? trans.__('Keep %1', gpus(allocated, trans)) : trans.__('Withdraw'),
          trans.__('Ask for what you have'),
          true // or the options that made it impossible would stay
        )
      ];
    case 'Releasing': {
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
    case 'Degraded': {
      const healthy = view.gpus
        .filter(gpu => gpu.state === 'attached' || gpu.state === 'attaching')
        .reduce((sum, gpu) => sum + gpu.milli, 0);
      return [
        keep(
          view,
          healthy,
          trans.__('Give it back'),
          trans.__('Keep only the GPUs that work: %1', gpus(healthy, trans))
        )
      ];
    }
    default:
      return [];
  }
}

function keep(
  view: IView,
  milli: number,
  label: string,
  title: string,
  forget = milli === 0
): Action {
  const wish = { ...based(view), milli, ...(forget ? { forget } : {}) };
  return { kind: 'wish', label, title, wish };
}

function release(trans: TranslationBundle): Action {
  return {
    kind: 'wish',
    label: trans.__('Release all'),
    title: trans.__('Give every GPU back'),
    wish: { milli: 0, forget: true }
  };
}

/** The current wish: the server refuses if it has changed meanwhile, because the button was about that one. */
function based(view: IView): Pick<IWish, 'generation'> {
  return view.requested ? { generation: view.requested.generation } : {};
}
