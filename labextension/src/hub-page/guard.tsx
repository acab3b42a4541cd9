/** The end of a page that broke: what the service sent for browsers without scripts is shown again. */
import React from 'react';

/** Catches errors of what it contains. */
export class Guard extends React.Component<
  { readonly onError: () => void; readonly children: React.ReactNode },
  { readonly broken: boolean }
> {
  state = { broken: false };

  static getDerivedStateFromError(): { broken: boolean } {
    return { broken: true };
  }

  componentDidCatch(error: Error): void {
    console.warn('jupyter-gpu: the page broke:', error);
    this.props.onError();
  }

  render(): React.ReactNode {
    return this.state.broken ? null : this.props.children;
  }
}
