/** Bundles the slider in a cell (src/widget) into one ES module, as anywidget takes it. */
import { dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { rspack } from '@rspack/core';

const here = dirname(fileURLToPath(import.meta.url));
const compiler = rspack({
  mode: 'production',
  context: here,
  target: 'web',
  devtool: false,
  entry: './lib/widget/main.js',
  experiments: { outputModule: true },
  performance: { hints: false },
  output: {
    path: resolve(here, '../jupyter_gpu/kernel/widget'),
    filename: 'page.js',
    library: { type: 'module' },
    module: true
  }
});
compiler.run((error, stats) => {
  if (error || stats.hasErrors()) {
    console.error(error ?? stats.toString('errors-only'));
    process.exitCode = 1;
  }
  compiler.close(() => undefined);
});
