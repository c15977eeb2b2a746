/* What `tsc` must know of the page's scripts besides themselves. */
declare const echarts: any;
interface Element { [name: string]: any }
interface EventTarget { [name: string]: any }
