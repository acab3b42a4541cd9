/** {@link Machine} with its style: what is loaded when somebody wants to see it. */
import '../style/machine.css';
export { default } from './machine';
