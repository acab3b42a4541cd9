/** All GPUs of the machine, the servers that have them, and those that wait. Loaded when the section is opened. */
import type { TranslationBundle } from '@jupyterlab/translation';
import React from 'react';
import { IMachine, IMachineGpu, IPart, IServer, ITotals, parseMachine } from '../api/machine';
import { RefusedError } from '../api/request';
import { usePolled } from '../common/polling';
import { IGpuModel } from '../model/tokens';
import * as words from '../words/gpu';
import { shortGpus } from '../words/positions';
import { formatBytes, formatGpus, MILLI_PER_GPU } from '../words/quantity';

const PACE = { pause: 3000 };

/** Properties of the list. */
export interface IMachineProps {
  readonly model: IGpuModel;
  readonly trans: TranslationBundle;
}

/** The list; the default export, as React's lazy loading needs. */
export default function Machine({ model, trans }: IMachineProps): React.JSX.Element {
  const { known, failure } = usePolled(model, 'machine', parseMachine, true, PACE);
  return (
    <>
      {failure && (
        <p className="jp-gpu-Note">
          {failure instanceof RefusedError
            ? failure.message
            : trans.__('The server did not answer; it is asked again.')}
        </p>
      )}
      {known && <Known machine={known} trans={trans} />}
      {!known && !failure && <p>{trans.__('Asking the server…')}</p>}
    </>
  );
}

interface IKnownProps {
  readonly machine: IMachine;
  readonly trans: TranslationBundle;
}

function Known({ machine, trans }: IKnownProps): React.JSX.Element {
  const line = machine.servers
    .filter(({ owed }) => owed > 0)
    .sort((a, b) => (a.position ?? Infinity) - (b.position ?? Infinity));
  return (
    <>
      <p>{sums(machine.totals, trans)}</p>
      {machine.gpus.length > 0 && (
        <ul className="jp-gpu-Machine-gpus">
          {machine.gpus.map(gpu => (
            <Row key={gpu.uuid} gpu={gpu} trans={trans} />
          ))}
        </ul>
      )}
      {line.length > 0 && (
        <>
          <h4>{trans.__('In line')}</h4>
          <ol className="jp-gpu-Machine-line">
            {line.map((server, i) => (
              <li key={i}>{waits(server, trans)}</li>
            ))}
          </ol>
        </>
      )}
      {machine.shown === 'totals' && (
        <p>{trans.__('Who the others are is not told in a cluster.')}</p>
      )}
    </>
  );
}

interface IRowProps {
  readonly gpu: IMachineGpu;
  readonly trans: TranslationBundle;
}

function Row({ gpu, trans }: IRowProps): React.JSX.Element {
  const busy = words.percent(gpu.load, trans);
  const used = gpu.load.memory;
  const memory = formatBytes(gpu.memory);
  return (
    <li>
      <div className="jp-gpu-Machine-head">
        <strong>{trans.__('GPU %1', gpu.index)}</strong>
        <span title={gpu.uuid}>{gpu.model}</span>
        <span>
          {busy} · {used === null ? memory : trans.__('%1 of %2', formatBytes(used), memory)}
        </span>
      </div>
      <Bar gpu={gpu} />
      <ul>
        {gpu.parts.map((part, i) => (
          <li key={i}>
            <Mark kind={kind(part)} />
            <span>{holder(part.server, trans)}</span>
            <span>{amount(part, trans)}</span>
          </li>
        ))}
        {gpu.free > 0 && (
          <li>
            <Mark kind="free" />
            <span>{gpu.healthy ? trans.__('Free') : trans.__('Not working')}</span>
            <span>{gpu.free < MILLI_PER_GPU ? shortGpus(gpu.free) : ''}</span>
          </li>
        )}
      </ul>
    </li>
  );
}

/** A picture of the list below it, hidden from screen readers. */
function Bar({ gpu }: { readonly gpu: IMachineGpu }): React.JSX.Element {
  return (
    <div className="jp-gpu-Machine-bar" aria-hidden="true">
      {gpu.parts.map((part, i) => (
        <span key={i} data-kind={kind(part)} style={{ flexGrow: part.milli }} />
      ))}
      {gpu.free > 0 && <span data-kind="free" style={{ flexGrow: gpu.free }} />}
    </div>
  );
}

function Mark({ kind }: { readonly kind: string }): React.JSX.Element {
  return <span className="jp-gpu-Machine-mark" data-kind={kind} aria-hidden="true" />;
}

const kind = ({ server, draining }: IPart) =>
  draining ? 'draining' : server?.here ? 'here' : 'other';

/** `"This server"`, `"ann, ~/work (port 8889)"`, `"bob"`, `"Others"`. */
export function holder(server: IServer | null, trans: TranslationBundle): string {
  if (!server) {
    return trans.__('Others');
  }
  if (server.here) {
    return trans.__('This server');
  }
  const { user, folder, port } = server;
  const named = folder ? trans.__('%1, %2', user, folder) : user;
  const placed = port ? trans.__('%1 (port %2)', named, port) : named;
  return server.ended ? trans.__('%1, ended', placed) : placed;
}

function amount({ milli, draining }: IPart, trans: TranslationBundle): string {
  const size = milli === MILLI_PER_GPU ? trans.__('whole') : shortGpus(milli);
  return draining ? trans.__('%1, giving back', size) : size;
}

/** `"bob: 2 more"`. */
export function waits(server: IServer, trans: TranslationBundle): string {
  const who = holder(server, trans);
  return server.has > 0
    ? trans.__('%1: waits for %2 more', who, formatGpus(server.owed))
    : trans.__('%1: waits for %2', who, formatGpus(server.owed));
}

/** `"2 of 4 GPUs are free, nobody waits"`. */
export function sums({ gpus, free, waiting }: ITotals, trans: TranslationBundle): string {
  const amount =
    gpus === 1
      ? trans.__('%1 of 1 GPU is free', formatGpus(free))
      : trans.__('%1 of %2 GPUs are free', formatGpus(free), gpus);
  const line =
    waiting === 0
      ? trans.__('nobody waits')
      : waiting === 1
        ? trans.__('1 server waits')
        : trans.__('%1 servers wait', waiting);
  return trans.__('%1, %2', amount, line);
}
