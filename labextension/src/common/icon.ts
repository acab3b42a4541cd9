/** The icon of the panel. */
import { LabIcon } from '@jupyterlab/ui-components';

/** A graphics card: bracket, two fans, the edge connector. */
export const gpuIcon = new LabIcon({
  name: 'jupyter-gpu:gpu',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 16 16">
  <g class="jp-icon3" fill="#616161">
    <path d="M1 2h1.5v12H1z"/>
    <path fill-rule="evenodd" d="M3.5 4h10.5a1 1 0 0 1 1 1v5a1 1 0 0 1-1 1H3.500zM6.500 5.300a2.200 2.200 0 1 0 0 4.400 2.200 2.200 0 0 0 0-4.400zm5 0a2.200 2.200 0 1 0 0 4.400 2.200 2.200 0 0 0 0-4.400z"/>
    <path d="M6.500 6.600a.9.9 0 1 1 0 1.800.9.9 0 0 1 0-1.800zm5 0a.9.9 0 1 1 0 1.800.9.9 0 0 1 0-1.800zM5 12h6v1.500H5z"/>
  </g>
</svg>
`
});
