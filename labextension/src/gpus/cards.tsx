/** The GPUs of this server: model, users and load of each, as cards with charts or as a table of text. */
import type { TranslationBundle } from '@jupyterlab/translation';
import React from 'react';
import { ILoad } from '../api/sample';
import { IGpu } from '../api/view';
import { useFrames } from '../common/react';
import { IGpuModel } from '../model/tokens';
import * as words from '../words/gpu';
import { MILLI_PER_GPU } from '../words/quantity';
import { Chart } from './charts';
import { DetailsLine, IOpenDetails, useOpenDetails } from './details-line';
import { ShareCard, ShareTable } from './shares';

/** Properties of both forms. */
export interface IGpusProps {
  readonly model: IGpuModel;
  readonly gpus: readonly IGpu[];
  /** Seconds of history. */
  readonly window: number;
  readonly trans: TranslationBundle;
}

/** A card for each GPU. */
export function Cards({ model, gpus, window, trans }: IGpusProps): React.JSX.Element {
  useFrames(model.sampled);
  const details = useOpenDetails(model);
  return (
    <ul className="jp-gpu-Cards">
      {gpus.map(gpu => (
        <Card
          key={gpu.uuid}
          gpu={gpu}
          model={model}
          window={window}
          details={details}
          trans={trans}
        />
      ))}
    </ul>
  );
}

interface ICardProps extends Omit<IGpusProps, 'gpus'> {
  readonly gpu: IGpu;
  readonly details: IOpenDetails;
}

/** Properties of what stands in a card and in a row of the table. */
type IRowProps = Pick<ICardProps, 'gpu' | 'model' | 'trans'>;

function Card({ gpu, model, window, details, trans }: ICardProps): React.JSX.Element {
  // Programs on a simulated GPU can work without having it open: show nothing rather than a contradiction.
  const silent =
    !gpu.users.length && (gpu.strangers.length > 0 || model.history.shares.isUsed(gpu.uuid));
  return (
    <li className="jp-gpu-Card" data-state={gpu.state}>
      <CardHead gpu={gpu} trans={trans} />
      <LoadCharts gpu={gpu} model={model} window={window} trans={trans} />
      {gpu.milli < MILLI_PER_GPU && (
        <ShareCard gpu={gpu} history={model.history} window={window} trans={trans} />
      )}
      <Guest gpu={gpu} model={model} trans={trans} />
      {!silent && <p className="jp-gpu-Card-users">{words.users(gpu.users, trans)}</p>}
      <Idle gpu={gpu} model={model} trans={trans} />
      <DetailsLine gpu={gpu} load={model.history.load(gpu.uuid)} details={details} trans={trans} />
    </li>
  );
}

/** The use that a guest makes of it; nothing where there is none. */
function Guest({ gpu, model, trans }: IRowProps): React.JSX.Element | null {
  const guest = model.history.shares.latest(gpu.uuid)?.use.guest;
  return guest ? <p className="jp-gpu-Card-guest">{words.guestUse(guest, trans)}</p> : null;
}

/** For how long nothing has run on a GPU that is open; nothing if it is in use. */
function Idle({ gpu, model, trans }: IRowProps): React.JSX.Element | null {
  const text = words.idle(gpu, model.history.latest ?? Date.now() / 1000, trans);
  return text ? <p className="jp-gpu-Card-idle">{text}</p> : null;
}

/** Number, state, model, share, and what is unusual about the GPU. */
function CardHead({ gpu, trans }: Pick<ICardProps, 'gpu' | 'trans'>): React.JSX.Element {
  return (
    <>
      <div className="jp-gpu-Card-head">
        <h4>{trans.__('GPU %1', gpu.index)}</h4>
        <span className="jp-gpu-Badge" data-state={gpu.state}>
          {words.state(gpu, trans)}
        </span>
      </div>
      <p className="jp-gpu-Card-model" title={gpu.uuid}>
        {gpu.model}
      </p>
      <p>{words.share(gpu, trans)}</p>
      {gpu.strangers.length > 0 && (
        <p className="jp-gpu-Card-strangers">{words.strangers(gpu.strangers, trans)}</p>
      )}
      {gpu.health && <p className="jp-gpu-Card-health">{gpu.health}</p>}
    </>
  );
}

/** Utilisation and memory: the current figures, and their charts. */
function LoadCharts({ gpu, model, window, trans }: Omit<ICardProps, 'details'>): React.JSX.Element {
  const series = model.history.series(gpu.uuid, window);
  const now = model.history.latest ?? 0;
  const load = newest(series);
  const utilisation = words.percent(load, trans);
  const memory = words.memory(load, gpu, trans);
  return (
    <>
      <p className="jp-gpu-Card-load">
        <span>{trans.__('Utilisation')}</span>
        <span>{utilisation}</span>
      </p>
      <Chart
        label={trans.__('Utilisation of GPU %1 over time, now %2', gpu.index, utilisation)}
        time={series.time}
        values={series.utilisation}
        top={100}
        seconds={window}
        now={now}
        colour="--jp-brand-color1"
      />
      <p className="jp-gpu-Card-load">
        <span>{trans.__('Memory')}</span>
        <span>{memory}</span>
      </p>
      <Chart
        label={trans.__('Memory of GPU %1 over time, now %2', gpu.index, memory)}
        time={series.time}
        values={series.memory}
        top={gpu.memory || 1}
        seconds={window}
        now={now}
        colour="--jp-accent-color1"
      />
    </>
  );
}

/** The same as {@link Cards} in words and numbers. */
export function Table({ model, gpus, window, trans }: IGpusProps): React.JSX.Element {
  useFrames(model.sampled);
  const details = useOpenDetails(model);
  return (
    <div
      className="jp-gpu-Table"
      role="region"
      aria-label={trans.__('GPUs of this server')}
      // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- scrollable content must be reachable by keyboard
      tabIndex={0}
    >
      <table>
        <thead>
          <tr>
            <th scope="col">{trans.__('GPU')}</th>
            <th scope="col">{trans.__('State')}</th>
            <th scope="col">{trans.__('Load')}</th>
            <th scope="col">{trans.__('Memory')}</th>
            <th scope="col">{trans.__('Share')}</th>
            <th scope="col">{trans.__('Use')}</th>
          </tr>
        </thead>
        <tbody>
          {gpus.map(gpu => (
            <Row key={gpu.uuid} gpu={gpu} model={model} trans={trans} />
          ))}
        </tbody>
      </table>
      {gpus.map(gpu => (
        <DetailsLine
          key={gpu.uuid}
          gpu={gpu}
          load={model.history.load(gpu.uuid)}
          details={details}
          trans={trans}
          name={trans.__('Details of GPU %1', gpu.index)}
        />
      ))}
      {gpus
        .filter(gpu => gpu.milli < MILLI_PER_GPU)
        .map(gpu => (
          <ShareTable
            key={gpu.uuid}
            gpu={gpu}
            history={model.history}
            window={window}
            trans={trans}
          />
        ))}
    </div>
  );
}

function Row({ gpu, model, trans }: IRowProps): React.JSX.Element {
  const load = newest(model.history.series(gpu.uuid, 10 * model.history.interval));
  return (
    <tr>
      <th scope="row" title={gpu.model}>
        {gpu.index}
      </th>
      <td>{words.state(gpu, trans)}</td>
      <td>{words.percent(load, trans)}</td>
      <td>{words.memory(load, gpu, trans)}</td>
      <td>
        <div>{words.share(gpu, trans)}</div>
        <Guest gpu={gpu} model={model} trans={trans} />
      </td>
      <td>
        {(gpu.users.length > 0 || !gpu.strangers.length) && (
          <div>{words.users(gpu.users, trans)}</div>
        )}
        <Idle gpu={gpu} model={model} trans={trans} />
        {gpu.strangers.length > 0 && <div>{words.strangers(gpu.strangers, trans)}</div>}
      </td>
    </tr>
  );
}

function newest(series: {
  readonly utilisation: readonly (number | null)[];
  readonly memory: readonly (number | null)[];
}): ILoad {
  return {
    utilisation: series.utilisation[series.utilisation.length - 1] ?? null,
    memory: series.memory[series.memory.length - 1] ?? null
  };
}
