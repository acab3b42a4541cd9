/** Shown in place of code that could not be loaded, as after an update of the server. */
import type { TranslationBundle } from '@jupyterlab/translation';
import React from 'react';

/** The advice for it. */
export function NotLoaded({ trans }: { readonly trans: TranslationBundle }): React.JSX.Element {
  return (
    <p className="jp-gpu-Note jp-mod-error" role="alert">
      {trans.__('A part of this page could not be loaded. Reload the page.')}
    </p>
  );
}
