/** The amount of GPUs: the slider, the sentence below it, and the actions. In the panel and in the popover. */
import type { TranslationBundle } from '@jupyterlab/translation';
import React, { useEffect, useState } from 'react';
import '../../style/panel.css';
import { Connection } from '../api/stream';
import { IUser, IView } from '../api/view';
import { useSignal } from '../common/react';
import { IGpuModel } from '../model/tokens';
import { explain, sentence } from '../words/sentence';
import { Action, actions } from './actions';
import { Lending } from './lending';
import { Limit, useLimitNews } from './limit';
import { MemoryField } from './memory-field';
import { ModelChoice } from './model-choice';
import { Placement } from './placement';
import { GpuSlider } from './slider';

export { WantedGpus } from '../notebook/wanted-gpus';

/** Restart the kernel of `user` once that is confirmed. */
export type Restart = (user: IUser & { readonly kernel: string }) => void;

/** Properties of all parts. */
export interface IPartProps {
  readonly model: IGpuModel;
  readonly trans: TranslationBundle;
}

/** Properties of a slider. */
export interface IAmountProps extends IPartProps {
  readonly restart: Restart;
}

/** All of it, or an explanation if there is no GPU to have. Renders again when the model changes. */
export function Amount({ model, trans, restart }: IAmountProps): React.JSX.Element {
  useSignal(model.changed);
  const { view, connection } = model;
  const online = connection.state === 'online';
  const choice = view && { view, model, disabled: !online, trans };
  return (
    <>
      <ConnectionNote connection={connection} model={model} trans={trans} />
      {view && choice && view.total > 0 && (
        <section className="jp-gpu-Section" aria-label={trans.__('Amount')}>
          <GpuSlider
            steps={view.steps}
            limit={view.limit}
            value={model.wanted ?? view.amounts.requested}
            attached={view.amounts.attached}
            disabled={!online}
            trans={trans}
            onCommit={milli => void model.request({ milli })}
          />
          <ModelChoice {...choice} />
          <MemoryField {...choice} />
          <Placement {...choice} />
          <Lending {...choice} />
          <p className="jp-gpu-Sentence" data-phase={view.phase}>
            {sentence(view, trans)}
          </p>
          <Limit view={view} trans={trans} />
          <Buttons view={view} model={model} disabled={!online} trans={trans} restart={restart} />
        </section>
      )}
      <Failure model={model} trans={trans} />
    </>
  );
}

function ConnectionNote({
  connection,
  model,
  trans
}: IPartProps & { readonly connection: Connection }): React.JSX.Element | null {
  switch (connection.state) {
    case 'online':
      return null;
    case 'connecting':
      return <p className="jp-gpu-Note">{trans.__('Connecting…')}</p>;
    case 'reconnecting':
      return (
        <div className="jp-gpu-Note jp-mod-warning">
          <p>{trans.__('The server cannot be reached. Reconnecting…')}</p>
          <p>{trans.__('Kernels and their GPUs are not touched by this.')}</p>
          <button className="jp-gpu-Button" onClick={() => model.reconnect()}>
            {trans.__('Try now')}
          </button>
        </div>
      );
    case 'refused':
      return (
        <div className="jp-gpu-Note jp-mod-error">
          <p>{explain(connection.error, trans)}</p>
          <button className="jp-gpu-Button" onClick={() => model.reconnect()}>
            {trans.__('Try again')}
          </button>
        </div>
      );
  }
}

interface IButtonsProps extends IPartProps {
  readonly view: IView;
  readonly disabled: boolean;
  readonly restart: Restart;
}

function Buttons({
  view,
  model,
  disabled,
  trans,
  restart
}: IButtonsProps): React.JSX.Element | null {
  const all = actions(view, trans);
  const act = (action: Action) =>
    action.kind === 'restart' ? restart(action.user) : void model.request(action.request);
  return all.length === 0 ? null : (
    <div className="jp-gpu-Buttons">
      {all.map(action => (
        <button
          key={action.label}
          className="jp-gpu-Button"
          title={action.title}
          disabled={disabled}
          onClick={() => act(action)}
        >
          {action.label}
        </button>
      ))}
    </div>
  );
}

function Failure({ model, trans }: IPartProps): React.JSX.Element | null {
  const { failure } = model;
  return !failure ? null : (
    <div className="jp-gpu-Note jp-mod-error" role="alert">
      <p>{explain(failure.error, trans)}</p>
      <div className="jp-gpu-Buttons">
        {failure.request && (
          <button className="jp-gpu-Button" onClick={() => model.retry()}>
            {trans.__('Try again')}
          </button>
        )}
        <button className="jp-gpu-Button" onClick={() => model.dismiss()}>
          {trans.__('Dismiss')}
        </button>
      </div>
    </div>
  );
}

/** Milliseconds that a state must last to be announced. */
const PAUSE = 400;

/** Announces the result of a request to screen readers, politely and without every step. */
export function Announcer({ model, trans }: IPartProps): React.JSX.Element {
  useSignal(model.changed);
  const { view, connection } = model;
  const news = useLimitNews(view, trans);
  const now = view ? sentence(view, trans) : '';
  const text =
    connection.state === 'reconnecting'
      ? trans.__('The server cannot be reached. Reconnecting…')
      : news
        ? trans.__('%1. %2', now, news)
        : now;
  const [said, say] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => say(text), PAUSE);
    return () => clearTimeout(timer);
  }, [text]);
  return (
    <div className="jp-gpu-Hidden" role="status" aria-live="polite">
      {said}
    </div>
  );
}
