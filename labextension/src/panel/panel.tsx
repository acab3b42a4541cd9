/** The side panel "GPUs". Its content is loaded when it is first in view: most pages never open it. */
import { ReactWidget } from '@jupyterlab/ui-components';
import { IDisposable } from '@lumino/disposable';
import { Message } from '@lumino/messaging';
import React from 'react';
import { gpuIcon } from '../common/icon';
import { NotLoaded } from '../common/not-loaded';
import { loadWithRetries } from '../common/retry';
import type { IContentProps } from './content';

/** The widget, which requests samples only while it is in view. */
export class GpuPanel extends ReactWidget {
  private watching: IDisposable | null = null;
  private content: ((props: IContentProps) => React.JSX.Element) | null = null;
  private failed = false;

  constructor(private readonly options: IContentProps) {
    super();
    this.id = 'jupyter-gpu-panel';
    this.addClass('jp-gpu-Panel');
    this.title.icon = gpuIcon;
    this.title.caption = options.trans.__('GPUs');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', options.trans.__('GPUs'));
  }

  protected render(): React.JSX.Element {
    if (this.content) {
      return this.content(this.options);
    }
    return this.failed ? <NotLoaded trans={this.options.trans} /> : <></>;
  }

  protected onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this.followVisibility();
  }

  protected onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    this.followVisibility();
  }

  protected onAfterHide(msg: Message): void {
    super.onAfterHide(msg);
    this.followVisibility();
  }

  protected onBeforeDetach(msg: Message): void {
    super.onBeforeDetach(msg);
    this.watching?.dispose();
    this.watching = null;
  }

  private followVisibility(): void {
    if (this.isVisible) {
      this.watching ??= this.options.model.watch();
      void this.load();
    } else {
      this.watching?.dispose();
      this.watching = null;
    }
  }

  private async load(): Promise<void> {
    if (this.content) {
      return;
    }
    const loaded = await loadWithRetries(
      'the panel',
      () => import(/* webpackChunkName: "content" */ './content')
    );
    this.content = loaded && (props => <loaded.Content {...props} />);
    this.failed = !loaded;
    this.update();
  }
}
