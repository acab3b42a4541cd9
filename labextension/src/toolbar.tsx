/** The item of a notebook's toolbar: `GPU 1/4`, which opens the slider in a popover. */
import { ReactWidget } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import React, { useRef } from 'react';
import { Indicator } from './indicator';
import { GpuPopover } from './popover';
import { useSignal } from './react';
import { IGpuModel, IGpuSettings } from './tokens';

/** What the item needs. */
export interface IToolbarOptions {
  readonly model: IGpuModel;
  readonly settings: IGpuSettings;
  readonly trans: TranslationBundle;
  readonly popover: GpuPopover;
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

/** Nothing where it is switched off, or where there is no GPU to have: none at all, or none for this notebook's kernel. */
function Item({ model, settings, trans, popover }: IToolbarOptions): React.JSX.Element | null {
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
          void popover.open(event.currentTarget);
        }
      }}
    />
  );
}
