import { LabIcon } from '@jupyterlab/ui-components';

/** A graphics card, seen from above: chip, pins. */
export const gpuIcon = new LabIcon({
  name: 'jupyter-gpu:gpu',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 16 16">
  <g class="jp-icon3" fill="#616161">
    <path fill-rule="evenodd" d="M4 3h8a1 1 0 0 1 1 1v8a1 1 0 0 1-1 1H4a1 1 0 0 1-1-1V4a1 1 0 0 1 1-1zm.5 1.5v7h7v-7z"/>
    <path d="M6 6h4v4H6zM5 1h1v1.4H5zm2.5 0h1v1.4h-1zM10 1h1v1.4h-1zM5 13.6h1V15H5zm2.5 0h1V15h-1zm2.5 0h1V15h-1zM1 5h1.4v1H1zm0 2.5h1.4v1H1zM1 10h1.4v1H1zM13.6 5H15v1h-1.4zm0 2.5H15v1h-1.4zm0 2.5H15v1h-1.4z"/>
  </g>
</svg>
`
});
