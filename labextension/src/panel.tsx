/** The side panel "GPUs". */
import { ReactWidget } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import { IDisposable } from '@lumino/disposable';
import { Message } from '@lumino/messaging';
import React, { useEffect, useState } from 'react';
import { Action, actions } from './actions';
import { IUser, IView } from './api';
import { Cards, Table } from './cards';
import { gpuIcon } from './icon';
import { useSignal } from './react';
import { explain, sentence } from './sentence';
import { GpuSlider } from './slider';
import { Connection } from './stream';
import { IGpuModel, IGpuSettings } from './tokens';

/** What the panel is made of; `restart` restarts the kernel of `user` once that is confirmed. */
export interface IPanelOptions {
  readonly model: IGpuModel;
  readonly settings: IGpuSettings;
  readonly trans: TranslationBundle;
  readonly restart: (user: IUser & { readonly kernel: string }) => void;
}

/** The widget: has samples sent only while it is in sight. */
export class GpuPanel extends ReactWidget {
  constructor(private readonly options: IPanelOptions) {
    super();
    this.id = 'jupyter-gpu-panel';
    this.addClass('jp-gpu-Panel');
    this.title.icon = gpuIcon;
    this.title.caption = options.trans.__('GPUs');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', options.trans.__('GPUs'));
  }

  protected render(): React.JSX.Element {
    return <Content {...this.options} />;
  }

  protected onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this.look();
  }

  protected onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    this.look();
  }

  protected onAfterHide(msg: Message): void {
    super.onAfterHide(msg);
    this.look();
  }

  protected onBeforeDetach(msg: Message): void {
    super.onBeforeDetach(msg);
    this.watching?.dispose();
    this.watching = null;
  }

  private look(): void {
    if (this.isVisible) {
      this.watching ??= this.options.model.watch();
    } else {
      this.watching?.dispose();
      this.watching = null;
    }
  }

  private watching: IDisposable | null = null;
}

function Content({ model, settings, trans, restart }: IPanelOptions): React.JSX.Element {
  useSignal(model.changed);
  useSignal(settings.changed);
  const { view, connection } = model;
  const online = connection.state === 'online';
  return (
    <>
      <div className="jp-gpu-Header">
        <h2>{trans.__('GPUs')}</h2>
        {view?.simulated && <span className="jp-gpu-Chip">{trans.__('Simulated')}</span>}
        {view?.mode === 'soft' && <span className="jp-gpu-Chip">{trans.__('Soft mode')}</span>}
      </div>
      <ConnectionNote connection={connection} model={model} trans={trans} />
      {view && view.total > 0 && (
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
          <p className="jp-gpu-Sentence" data-phase={view.phase}>
            {sentence(view, trans)}
          </p>
          <Buttons view={view} model={model} disabled={!online} trans={trans} restart={restart} />
        </section>
      )}
      {view?.total === 0 && <Nothing looking={isLooking(view)} trans={trans} />}
      <Failure model={model} trans={trans} />
      {view && <Notes view={view} />}
      {view && view.gpus.length > 0 && (
        <section className="jp-gpu-Section" aria-label={trans.__('Your GPUs')}>
          <div className="jp-gpu-Section-head">
            <h3>{trans.__('Your GPUs')}</h3>
            <label className="jp-gpu-Toggle">
              <input
                type="checkbox"
                checked={settings.tableInsteadOfCharts}
                onChange={event => settings.showTable(event.target.checked)}
              />
              {trans.__('Show as table')}
            </label>
          </div>
          {settings.tableInsteadOfCharts ? (
            <Table model={model} gpus={view.gpus} window={settings.chartWindow} trans={trans} />
          ) : (
            <Cards model={model} gpus={view.gpus} window={settings.chartWindow} trans={trans} />
          )}
        </section>
      )}
      <Announcer model={model} trans={trans} />
    </>
  );
}

interface IPartProps {
  readonly model: IGpuModel;
  readonly trans: TranslationBundle;
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
  restart: IPanelOptions['restart'];
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
    action.kind === 'restart' ? restart(action.user) : void model.request(action.wish);
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
        {failure.wish && (
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

const EXAMPLE = '--GpuExtension.simulated_gpus=4';

/** The server does not know yet which GPUs there are; a condition says so in words. */
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

/** What the server wants its user to know. */
function Notes({ view }: { view: IView }): React.JSX.Element | null {
  return view.conditions.length === 0 ? null : (
    <ul className="jp-gpu-Notes">
      {view.conditions.map(({ type, message }) => (
        <li key={type} className="jp-gpu-Note">
          {message}
        </li>
      ))}
    </ul>
  );
}

/** Milliseconds that a state must last to be worth saying. */
const PAUSE = 400;

/** Says what came of a wish to those who listen instead of looking; politely, and not every step on the way. */
function Announcer({ model, trans }: IPartProps): React.JSX.Element {
  const [said, say] = useState('');
  const { view, connection } = model;
  const text =
    connection.state === 'reconnecting'
      ? trans.__('The server cannot be reached. Reconnecting…')
      : view
        ? sentence(view, trans)
        : '';
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
