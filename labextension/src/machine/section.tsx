/** The section "This machine": closed at first; its content is loaded when it is opened. */
import { PageConfig } from '@jupyterlab/coreutils';
import React, { lazy, Suspense, useState } from 'react';
import { NotLoaded } from '../common/not-loaded';
import { loadWithRetries } from '../common/retry';
import type { IMachineProps } from './machine';

const Machine = lazy(
  async () =>
    (await loadWithRetries(
      'the machine',
      () => import(/* webpackChunkName: "machine" */ './styled')
    )) ?? {
      default: NotLoaded
    }
);

/** The section; nothing if the administrator shows it to nobody. */
export function MachineSection({ model, trans }: IMachineProps): React.JSX.Element | null {
  const [open, setOpen] = useState(false);
  if (PageConfig.getOption('jupyterGpuMachine') === 'nobody') {
    return null;
  }
  const cluster = model.view?.backend === 'kubernetes';
  return (
    <details
      className="jp-gpu-Section jp-gpu-Machine"
      onToggle={event => setOpen(event.currentTarget.open)}
    >
      <summary>
        <h3>{cluster ? trans.__('This node') : trans.__('This machine')}</h3>
      </summary>
      {open && (
        <Suspense fallback={null}>
          <Machine model={model} trans={trans} />
        </Suspense>
      )}
    </details>
  );
}
