/** The item of a notebook's toolbar: `GPU 1/4`, which opens the slider in a popover. */
import { ReactWidget } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import React, { useRef } from 'react';
import { useSignal } from '../common/react';
import { IGpuModel, IGpuSettings } from '../model/tokens';
import { NotebookWants } from '../notebook/notebook';
import { describe, offer } from '../notebook/wants';
import { gpus } from '../words/sentence';
import { Indicator } from './indicator';
import { GpuPopover } from './popover';

/** Properties of the item. */
export interface IToolbarOptions {
  readonly model: IGpuModel;
  readonly settings: IGpuSettings;
  readonly trans: TranslationBundle;
  readonly popover: GpuPopover;
  /** The notebook of the toolbar. */
  readonly notebook: NotebookWants;
}

/** The widget in one toolbar. */
export class ToolbarItem extends ReactWidget {
  constructor(private readonly options: IToolbarOptions) {
    super();
    this.addClass('jp-gpu-ToolbarItem');
  }

  protected render(): React.JSX.Element {
    return <Item {...this.options} />;
  }
}

/** The item; nothing if it is switched off, or if there is no GPU at all or none for this notebook's kernel. */
function Item(options: IToolbarOptions): React.JSX.Element | null {
  const { model, settings, trans, popover, notebook } = options;
  useSignal(model.changed);
  useSignal(settings.changed);
  useSignal(popover.toggled);
  const button = useRef<HTMLButtonElement>(null);
  const wasOpen = useRef(false);
  const isOpen = () => button.current !== null && popover.anchor === button.current;
  const elsewhere = model.view?.conditions.some(({ type }) => type === 'KernelsElsewhere');
  if (!settings.showInToolbar || model.view?.total === 0 || elsewhere) {
    return null;
  }
  return (
    <>
      <Indicator
        buttonRef={button}
        model={model}
        trans={trans}
        aria-haspopup="dialog"
        aria-expanded={isOpen()}
        onPointerDown={() => {
          wasOpen.current = isOpen(); // the browser closes it before the click comes
        }}
        onClick={event => {
          const open = isOpen() || (event.detail > 0 && wasOpen.current);
          if (open) {
            popover.close();
          } else {
            void popover.open(event.currentTarget, notebook);
          }
        }}
      />
      <Take {...options} />
    </>
  );
}

/** A button that takes what the notebook wants; nothing if it has that, or wants nothing. */
function Take({ model, trans, notebook, popover }: IToolbarOptions): React.JSX.Element | null {
  useSignal(notebook.changed);
  const { value } = notebook;
  const { view } = model;
  const wants = value && 'milli' in value ? value : null;
  const request = wants && view && model.wanted === null ? offer(wants, view) : null;
  if (!wants || !view || !request || model.connection.state !== 'online') {
    return null;
  }
  const label = trans.__('Take %1', gpus(request.milli, trans));
  const why =
    wants.milli > view.limit
      ? trans.__(
          'this notebook wants %1, and your limit is %2',
          describe(wants, trans),
          gpus(view.limit, trans)
        )
      : trans.__('this notebook wants %1', describe(wants, trans));
  const title = trans.__('%1: %2', label, why);
  return (
    <button
      type="button"
      className="jp-gpu-Take"
      title={title}
      aria-label={title}
      onClick={event => {
        const anchor = event.currentTarget;
        void model.request(request).then(done => {
          if (!done && model.failure) {
            void popover.open(anchor, notebook); // which says why
          }
        });
      }}
    >
      {label}
    </button>
  );
}
