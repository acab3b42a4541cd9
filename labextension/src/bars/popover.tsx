/** The slider beside the clicked element: one popover for the whole page. */
import { ReactWidget } from '@jupyterlab/ui-components';
import { Message } from '@lumino/messaging';
import { ISignal, Signal } from '@lumino/signaling';
import React from 'react';
import type { IAmountProps } from '../amount/amount';
import { NotLoaded } from '../common/not-loaded';
import { loadWithRetries } from '../common/retry';
import type { NotebookWants } from '../notebook/notebook';
import { place } from './place';

/** Options of the popover; `details` shows the panel. */
export interface IPopoverOptions extends IAmountProps {
  readonly details: () => void;
}

/**
 * The widget: in the document only while it is open. The browser shows it above everything, and closes it at Escape
 * and at a click elsewhere (HTML standard, popover="auto").
 */
export class GpuPopover extends ReactWidget {
  private readonly _toggled = new Signal<this, void>(this);
  private _anchor: HTMLElement | null = null;
  private notebook: NotebookWants | null = null;
  private parts: typeof import('../amount/amount') | null = null;

  constructor(private readonly options: IPopoverOptions) {
    super();
    this.id = 'jupyter-gpu-popover';
    this.addClass('jp-gpu-Panel');
    this.addClass('jp-gpu-Popover');
    this.node.popover = 'auto';
    this.node.tabIndex = -1;
    this.node.setAttribute('role', 'dialog');
    this.node.setAttribute('aria-label', options.trans.__('GPUs'));
    this.node.dataset.lmSuppressShortcuts = 'true';
    let hadFocus = false;
    this.node.addEventListener('beforetoggle', () => {
      hadFocus = this.node.contains(document.activeElement);
    });
    this.node.addEventListener('toggle', () => {
      const anchor = this._anchor;
      if (!this.node.matches(':popover-open')) {
        this.close();
        // The browser gave the focus back, but a toolbar passes it on.
        if (hadFocus) {
          anchor?.focus();
        }
      }
    });
  }

  /** The element beside which it is open; `null` while it is closed. */
  get anchor(): HTMLElement | null {
    return this._anchor;
  }

  /** Emitted when it was opened or closed. */
  get toggled(): ISignal<this, void> {
    return this._toggled;
  }

  /** Open it below `anchor`, or above if there is no room, with the focus on the slider, for `notebook`. */
  async open(anchor: HTMLElement, notebook: NotebookWants | null = null): Promise<void> {
    this.close();
    this._anchor = anchor;
    this.notebook = notebook;
    this.parts ??= await loadWithRetries(
      'the slider',
      () => import(/* webpackChunkName: "content" */ '../amount/amount')
    );
    if (this._anchor !== anchor) {
      return; // another one was clicked meanwhile
    }
    ReactWidget.attach(this, document.body);
    await this.renderPromise;
    if (this._anchor !== anchor || !this.isAttached) {
      return; // closed meanwhile
    }
    this.node.showPopover();
    this.place();
    (this.node.querySelector<HTMLElement>('input[type=range]:enabled') ?? this.node).focus();
    this._toggled.emit();
  }

  protected render(): React.JSX.Element {
    const { details, ...amount } = this.options;
    if (!this.parts) {
      return <NotLoaded trans={amount.trans} />;
    }
    const { Amount, Announcer, WantedGpus } = this.parts;
    return (
      <>
        <Amount {...amount} />
        {this.notebook && <WantedGpus {...amount} notebook={this.notebook} />}
        <button
          className="jp-gpu-Button jp-gpu-Popover-details"
          onClick={() => {
            this.close();
            details();
          }}
        >
          {amount.trans.__('Show details')}
        </button>
        <Announcer model={amount.model} trans={amount.trans} />
      </>
    );
  }

  protected onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    window.addEventListener('resize', this.place);
  }

  protected onCloseRequest(msg: Message): void {
    if (this.isAttached) {
      this._anchor = null;
      window.removeEventListener('resize', this.place);
      super.onCloseRequest(msg);
      this._toggled.emit();
    }
  }

  private readonly place = () => {
    if (this._anchor) {
      const { width, height } = this.node.getBoundingClientRect();
      const { innerWidth, innerHeight } = window;
      const at = place(
        this._anchor.getBoundingClientRect(),
        { width, height },
        { width: innerWidth, height: innerHeight },
        getComputedStyle(this._anchor).direction === 'rtl'
      );
      this.node.style.left = `${at.left}px`;
      this.node.style.top = `${at.top}px`;
    }
  };
}
