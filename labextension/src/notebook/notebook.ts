/** The used parts of an open notebook, without its package: JupyterLab and Notebook 7 share them. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ISignal } from '@lumino/signaling';
import { Signal } from '@lumino/signaling';
import type { Widget } from '@lumino/widgets';
import { IWants, KEY, parseWants, Wants, withWants } from './wants';

/** Its model. Changes go through the shared model, so that collaborators see them, and they can be undone. */
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

/** The wants of one open notebook. */
export class NotebookWants {
  private readonly tell = () => this._changed.emit();

  private model: INotebookModel | null = null;
  private readonly _changed = new Signal<this, void>(this);

  constructor(private readonly content: INotebookContent) {
    content.modelChanged.connect(this.follow);
    this.follow();
  }

  /** The wants of `widget`, always the same object; `null` if it is no notebook. */
  static of(widget: Widget | null): NotebookWants | null {
    const { content } = (widget ?? {}) as { content?: Partial<INotebookContent> };
    const isNotebook = content?.modelChanged && typeof content.model?.getMetadata === 'function';
    // A notebook that is just being opened has no model yet; its class is known by its toolbar's factory.
    return isNotebook || known.has(content as INotebookContent)
      ? NotebookWants.ofContent(content as INotebookContent)
      : null;
  }

  /** The wants of a notebook panel, which may have no model yet. */
  static ofContent(content: INotebookContent): NotebookWants {
    let found = known.get(content);
    if (!found) {
      known.set(content, (found = new NotebookWants(content)));
    }
    return found;
  }

  /** The parsed metadata. */
  get value(): Wants {
    return parseWants(this.model?.getMetadata(KEY));
  }

  /** Whether it can be changed. */
  get writable(): boolean {
    return this.model !== null && !this.model.readOnly;
  }

  /** Emitted when the metadata may have changed. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** Write `wants` into the metadata, or remove them. They are saved with the notebook. */
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
}

const known = new WeakMap<INotebookContent, NotebookWants>();

/** The wants of the notebook in front. */
export class CurrentNotebook {
  private readonly tell = () => this._changed.emit();

  private followed: NotebookWants | null = null;
  private readonly _changed = new Signal<this, void>(this);

  constructor(private readonly shell: JupyterFrontEnd.IShell) {
    shell.currentChanged?.connect(this.follow);
    this.follow();
  }

  /** `null` if something else is in front. */
  get value(): NotebookWants | null {
    // Looked up again: a notebook that was just opened may have had no model when it came to the front.
    return NotebookWants.of(this.shell.currentWidget);
  }

  /** Emitted when the notebook or its wants change. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  private readonly follow = () => {
    this.followed?.changed.disconnect(this.tell);
    this.followed = this.value;
    this.followed?.changed.connect(this.tell);
    this.tell();
  };
}
