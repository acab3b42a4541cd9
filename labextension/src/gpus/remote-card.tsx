/** Workers on other nodes, and the GPUs that this server has through them: a card of text for each. */
import type { TranslationBundle } from '@jupyterlab/translation';
import React from 'react';
import { IGpuKind, IRemoteGpu, IWorker } from '../api/view';
import { useFrames } from '../common/react';
import { IGpuModel } from '../model/tokens';
import * as words from '../words/gpu';
import * as remote from '../words/remote';

/** Properties of the cards. */
export interface IRemoteCardsProps {
  readonly model: IGpuModel;
  readonly workers: readonly IWorker[];
  readonly trans: TranslationBundle;
}

/** A card for each worker. */
export function RemoteCards({ model, workers, trans }: IRemoteCardsProps): React.JSX.Element {
  useFrames(model.sampled);
  return (
    <ul className="jp-gpu-Cards" aria-label={trans.__('Your GPUs on other nodes')}>
      {workers.map(worker => (
        <RemoteCard key={worker.id} worker={worker} model={model} trans={trans} />
      ))}
    </ul>
  );
}

interface IRemoteCardProps extends Omit<IRemoteCardsProps, 'workers'> {
  readonly worker: IWorker;
}

function RemoteCard({ worker, model, trans }: IRemoteCardProps): React.JSX.Element {
  const state = remote.look(worker) ?? undefined;
  const facts = [remote.toCome(worker, trans), worker.message, remote.traffic(worker, trans)];
  return (
    <li className="jp-gpu-Card" data-state={state}>
      <div className="jp-gpu-Card-head">
        <h4>{worker.node}</h4>
        <span className="jp-gpu-Badge" data-state={state}>
          {remote.stage(worker, trans)}
        </span>
      </div>
      <p className="jp-gpu-Card-model">{remote.distance(worker, trans)}</p>
      {worker.gpus.map((gpu, number) => (
        <RemoteGpu
          key={gpu.uuid}
          gpu={gpu}
          kind={worker.kinds[number]}
          number={number}
          model={model}
          trans={trans}
        />
      ))}
      {facts.map(
        fact =>
          fact && (
            <p key={fact} className="jp-gpu-Card-fact">
              {fact}
            </p>
          )
      )}
    </li>
  );
}

interface IRemoteGpuProps extends Omit<IRemoteCardsProps, 'workers'> {
  readonly gpu: IRemoteGpu;
  /** Not there: not known. */
  readonly kind?: IGpuKind;
  /** As programs there count. */
  readonly number: number;
}

/** Number and share of a GPU, and its load, model and memory once the worker has been asked for it. */
function RemoteGpu({ gpu, kind, number, model, trans }: IRemoteGpuProps): React.JSX.Element {
  const load = model.history.load(gpu.uuid);
  const share = words.share({ milli: gpu.milli, strangers: [] }, trans);
  return (
    <>
      <p className="jp-gpu-Card-load" title={gpu.uuid}>
        <span>{trans.__('GPU %1', number)}</span>
        <span>
          {load.utilisation === null ? share : `${share} · ${words.percent(load, trans)}`}
        </span>
      </p>
      {kind && (
        <p className="jp-gpu-Card-load">
          <span>{kind.model}</span>
          <span>{words.memory(load, kind, trans)}</span>
        </p>
      )}
      {gpu.health && <p className="jp-gpu-Card-health">{gpu.health}</p>}
    </>
  );
}
