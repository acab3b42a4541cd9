/** The content of the panel. Loaded when it is first opened. */
import type { TranslationBundle } from '@jupyterlab/translation';
import React, { lazy, Suspense } from 'react';
import { Amount, Announcer, IAmountProps, WantedGpus } from '../amount/amount';
import { LOWERED } from '../amount/limit';
import { IView } from '../api/view';
import { gpuIcon } from '../common/icon';
import { NotLoaded } from '../common/not-loaded';
import { useSignal } from '../common/react';
import { loadWithRetries } from '../common/retry';
import { MachineSection } from '../machine/section';
import { IGpuSettings } from '../model/tokens';
import type { CurrentNotebook } from '../notebook/notebook';

/** Charts are more than half of all code, and not needed before there is a GPU. */
const Gpus = lazy(
  async () =>
    (await loadWithRetries(
      'the charts',
      () => import(/* webpackChunkName: "charts" */ '../gpus/gpus')
    )) ?? {
      default: NotLoaded
    }
);

/** Properties of the content. */
export interface IContentProps extends IAmountProps {
  readonly settings: IGpuSettings;
  readonly notebook: CurrentNotebook;
}

/** The content. */
export function Content(props: IContentProps): React.JSX.Element {
  const { model, settings, trans, restart, notebook } = props;
  useSignal(model.changed);
  useSignal(notebook.changed);
  useSignal(settings.changed);
  const { view } = model;
  return (
    <>
      <div className="jp-gpu-Header">
        <h2>{trans.__('GPUs')}</h2>
        {view?.simulated && <span className="jp-gpu-Chip">{trans.__('Simulated')}</span>}
        {view?.mode === 'soft' && <span className="jp-gpu-Chip">{trans.__('Soft mode')}</span>}
      </div>
      <Amount model={model} trans={trans} restart={restart} />
      {notebook.value && <WantedGpus model={model} trans={trans} notebook={notebook.value} />}
      {view?.total === 0 && <Nothing looking={isLooking(view)} trans={trans} />}
      {view && <Notes view={view} />}
      {view && view.gpus.length + view.workers.length > 0 && (
        <Suspense fallback={null}>
          <Gpus model={model} settings={settings} view={view} trans={trans} />
        </Suspense>
      )}
      {view && view.total > 0 && <MachineSection model={model} trans={trans} />}
      <Announcer model={model} trans={trans} />
    </>
  );
}

const EXAMPLE = '--GpuExtension.simulated_gpus=4';

/** Whether the server does not know yet which GPUs there are; a condition says so in words. */
function isLooking(view: IView): boolean {
  return view.conditions.some(({ type }) => type === 'LookingForGpus');
}

interface INothingProps {
  readonly looking: boolean;
  readonly trans: TranslationBundle;
}

function Nothing({ looking, trans }: INothingProps): React.JSX.Element {
  return (
    <section className="jp-gpu-Section jp-gpu-Nothing" aria-label={trans.__('Amount')}>
      <gpuIcon.react tag="div" width="40px" height="40px" aria-hidden="true" />
      {!looking && (
        <>
          <p className="jp-gpu-Sentence">{trans.__('There is no GPU here.')}</p>
          <p>{trans.__('To try it out, start the server with simulated GPUs:')}</p>
          <code>{EXAMPLE}</code>
        </>
      )}
    </section>
  );
}

/** The conditions of the server, without the one that stands below the slider. */
function Notes({ view }: { view: IView }): React.JSX.Element | null {
  const shown = view.conditions.filter(({ type }) => type !== LOWERED);
  return shown.length === 0 ? null : (
    <ul className="jp-gpu-Notes">
      {shown.map(({ type, message }) => (
        <li key={type} className="jp-gpu-Note">
          {message}
        </li>
      ))}
    </ul>
  );
}
