// What the console's page uses of uPlot.
export default class uPlot {
  constructor(options: Record<string, unknown>, data: (number | null)[][], place: HTMLElement);
  destroy(): void;
}
