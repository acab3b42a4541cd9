/** Errors in words. */
import type { TranslationBundle } from '@jupyterlab/translation';
import React from 'react';
import { BadAnswerError, RefusedError, UnreachableError } from '../hub-api/call';

/** An error and what to do about it. */
export function explainError(error: Error, trans: TranslationBundle): string {
  if (error instanceof UnreachableError) {
    return trans.__('The service did not answer. Limits that are set hold. Trying again…');
  }
  if (error instanceof BadAnswerError) {
    return trans.__(
      'The service’s answer does not fit this page (%1). Load the page again.',
      error.message
    );
  }
  return error.message; // a sentence of the service
}

/** An error of something that is asked for again by itself, as a box. */
export function Problem(props: {
  readonly error: Error;
  readonly trans: TranslationBundle;
}): React.JSX.Element {
  const { error, trans } = props;
  const busy = error instanceof RefusedError && (error.status === 503 || error.status === 429);
  return (
    <p className="alert alert-danger" role="alert">
      {explainError(error, trans)}
      {busy && ` ${trans.__('Trying again…')}`}
    </p>
  );
}
