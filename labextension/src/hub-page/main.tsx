/**
 * Starts the page *GPU limits*: a module of its own, bundled into `hub/jupyter_gpu_hub/web/static/page.js`. What the service sent for
 * browsers without scripts stays until there is something better to show.
 */
import React from 'react';
import { createRoot } from 'react-dom/client';
import { Api, ownService } from '../hub-api/call';
import { App } from './app';
import { Guard } from './guard';
import { loadLanguage } from './language';

const root = document.getElementById('gpu-limits');
const plain = document.getElementById('gpu-plain');
if (root && plain) {
  const api = new Api(ownService(root.dataset.base ?? '', root.dataset.xsrf ?? ''));
  const show = (on: boolean) => {
    root.hidden = !on;
    plain.hidden = on;
  };
  void loadLanguage(api, document.documentElement.lang).then(({ name, trans }) => {
    root.lang = name;
    createRoot(root).render(
      <Guard onError={() => show(false)}>
        <App api={api} trans={trans} onReady={() => show(true)} />
      </Guard>
    );
  });
}
