/** Bundles what does not run as a part of JupyterLab's page, each into one file that a Python package sends. */
import { dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { rspack } from '@rspack/core';

const here = dirname(fileURLToPath(import.meta.url));

/** An ES module, or, for `script`, a script that blocks the page until it has run. */
function bundle(entry, folder, filename, script = false) {
  return {
    mode: 'production',
    context: here,
    target: ['web', 'es2022'],
    devtool: false,
    entry,
    experiments: { outputModule: !script },
    performance: { hints: false },
    output: {
      path: resolve(here, folder),
      filename,
      ...(script ? {} : { library: { type: 'module' }, module: true })
    }
  };
}

const STATIC = '../hub/jupyter_gpu_hub/web/static';
const compiler = rspack([
  bundle('./lib/widget/main.js', '../jupyter_gpu/kernel/widget', 'page.js'), // the slider in a cell, for anywidget
  bundle('./lib/hub-page/main.js', STATIC, 'page.js'),
  bundle('./lib/hub-page/theme.js', STATIC, 'theme.js', true)
]);
compiler.run((error, stats) => {
  if (error || stats.hasErrors()) {
    console.error(error ?? stats.toString('errors-only'));
    process.exitCode = 1;
  }
  compiler.close(() => undefined);
});
