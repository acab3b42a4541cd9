/** What is needed of an open notebook, without its package: JupyterLab and Notebook 7 have the same. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ISignal } from '@lumino/signaling';
import { Signal } from '@lumino/signaling';
import type { Widget } from '@lumino/widgets';
import { IWants, KEY, parseWants, Wants, withWants } from './wants';

/** Its model. What is set goes through the shared model, so that others who have it open see it, and it can be undone. */
interface INotebookModel {
  readonly readOnly: boolean;
  readonly metadataChanged: ISignal<unknown, unknown>;
  getMetadata(key: string): unknown;
  setMetadata(key: string, value: unknown): void;
  deleteMetadata(key: string): void;
}

interface INotebookContent {
  readonly model: INotebookModel | null;
  readonly modelChanged: ISignal<unknown, unknown>;
}

/** The widget of a notebook. */
export type NotebookPanel = Widget & { readonly content: INotebookContent };

/** What one open notebook wants. */
export class NotebookWants {
  constructor(private readonly content: INotebookContent) {
    content.modelChanged.connect(this.follow);
    this.follow();
  }

  /** That of `widget`, always the same one; `null` if it is no notebook. */
  static of(widget: Widget | null): NotebookWants | null {
    const { content } = (widget ?? {}) as { content?: Partial<INotebookContent> };
    const isNotebook = content?.modelChanged && typeof content.model?.getMetadata === 'function';
    // A notebook that is just being opened has no model yet; its class is known by its toolbar's factory.
    return isNotebook || known.has(content as INotebookContent)
      ? NotebookWants.ofContent(content as INotebookContent)
      : null;
  }

  /** That of the content of a notebook panel, which may have no model yet. */
  static ofContent(content: INotebookContent): NotebookWants {
    let found = known.get(content);
    if (!found) {
      known.set(content, (found = new NotebookWants(content)));
    }
    return found;
  }

  /** What its metadata says. */
  get value(): Wants {
    return parseWants(this.model?.getMetadata(KEY));
  }

  /** Whether it can be changed. */
  get writable(): boolean {
    return this.model !== null && !this.model.readOnly;
  }

  /** What it says may be another now. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** Have it say `wants` from now on, or nothing. It is saved with the notebook. */
  set(wants: IWants | null): void {
    const { model } = this;
    const metadata = withWants(model?.getMetadata(KEY), wants);
    if (metadata) {
      model?.setMetadata(KEY, metadata);
    } else {
      model?.deleteMetadata(KEY);
    }
  }

  private readonly follow = () => {
    this.model?.metadataChanged.disconnect(this.tell);
    this.model = this.content.model;
    this.model?.metadataChanged.connect(this.tell);
    this.tell();
  };

  private readonly tell = () => this._changed.emit();

  private model: INotebookModel | null = null;
  private readonly _changed = new Signal<this, void>(this);
}

const known = new WeakMap<INotebookContent, NotebookWants>();

/** What the notebook in front wants. */
export class CurrentNotebook {
  constructor(private readonly shell: JupyterFrontEnd.IShell) {
    shell.currentChanged?.connect(this.follow);
    this.follow();
  }

  /** `null` where something else is in front. */
  get value(): NotebookWants | null {
    // Asked anew: a notebook that was just opened may have had no model when it came to the front.
    return NotebookWants.of(this.shell.currentWidget);
  }

  /** It is another one, or wants something else. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  private readonly follow = () => {
    this.followed?.changed.disconnect(this.tell);
    this.followed = this.value;
    this.followed?.changed.connect(this.tell);
    this.tell();
  };

  private readonly tell = () => this._changed.emit();

  private followed: NotebookWants | null = null;
  private readonly _changed = new Signal<this, void>(this);
}
